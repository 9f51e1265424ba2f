{{/*
A whole family: every step, and what exists once for all of them. This is what a chart usually includes.
Takes: root, family, steps (a list of what belay.step takes as step), executable (optional).
*/}}
{{- define "belay.family" -}}
{{- /* Only for its refusal of equal weights: what it gives back is decided, belay.step decides itself. */ -}}
{{- $_ := include "belay.enabledSteps" . -}}
{{- range .steps }}
{{ include "belay.step" (dict "root" $.root "family" $.family "step" . "executable" $.executable) }}
{{- end }}
{{ include "belay.operate" . }}
{{- end -}}
