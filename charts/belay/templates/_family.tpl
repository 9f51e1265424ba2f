{{/*
A whole family: every step, and what exists once for all of them. This is what a chart usually includes.
Takes: root, family, steps (a list of what belay.step takes as step), executable (optional).
*/}}
{{- define "belay.family" -}}
{{- include "belay.once" . -}}
{{- /* Only for its refusal of equal weights: what it gives back is decided, belay.step decides itself. */ -}}
{{- $_ := include "belay.enabledSteps" . -}}
{{- range .steps }}
{{ include "belay.step" (dict "root" $.root "family" $.family "step" . "executable" $.executable) }}
{{- end }}
{{ include "belay.operate" . }}
{{- end -}}

{{/*
Refuses a second chart of the same family in one release: status, cleanup and policy of both would bear the same names. The
charts of a release cannot see each other, but Helm hands all of them the same map .Release: the first one signs it.
Takes: root, family.
*/}}
{{- define "belay.once" -}}
{{- $mark := printf "belay.%s" .family -}}
{{- $here := .root.Template.BasePath -}}
{{- $there := index .root.Release $mark | default $here -}}
{{- if ne $there $here -}}
  {{- fail (printf "belay: the release %s holds the family %s twice, in %s and in %s. Keep one of them, or give each a release of its own" .root.Release.Name .family $there $here) -}}
{{- end -}}
{{- $_ := set .root.Release $mark $here -}}
{{- end -}}
