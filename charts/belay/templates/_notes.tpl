{{/*
Seconds as Helm's --timeout takes them: 90 is 1m30s.
Takes: seconds.
*/}}
{{- define "belay.duration" -}}
{{- $seconds := int .seconds -}}
{{- if lt $seconds 60 -}}
{{- printf "%ds" $seconds -}}
{{- else if eq (mod $seconds 60) 0 -}}
{{- printf "%dm" (div $seconds 60) -}}
{{- else -}}
{{- printf "%dm%ds" (div $seconds 60) (mod $seconds 60) -}}
{{- end -}}
{{- end -}}

{{/*
Seconds that Helm must wait for the slowest step: Helm's --timeout counts per hook. A step that behaves ends within deadline +
undoReserve, and a hung pod within its backstop and 30 s of grace. The backstop is never the smaller of the two, so
what is left over in the usual case is the time to pull the image and to start the pod. 0 when nothing is switched on.
Takes: root, steps.
*/}}
{{- define "belay.timeout" -}}
{{- $longest := 0 -}}
{{- range include "belay.enabledSteps" . | fromJsonArray -}}
  {{- $longest = max $longest (add (int .backstop) 30) -}}
{{- end -}}
{{- $longest -}}
{{- end -}}

{{/*
For NOTES.txt: what runs and in which order, and how to look, rerun and restore.
Takes: root, family, steps.
*/}}
{{- define "belay.notes" -}}
{{- $settings := include "belay.settings" .root | fromJson -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $steps := include "belay.enabledSteps" . | fromJsonArray -}}
{{- $status := include "belay.name" (dict "root" .root "suffix" (include "belay.operateSuffix" (dict "root" .root "family" .family "what" "status"))) -}}
{{- $enabled := list -}}
{{- range $steps }}{{ $enabled = append $enabled .name }}{{ end -}}
{{- $off := list -}}
{{- range .steps }}{{ if not (has .name $enabled) }}{{ $off = append $off .name }}{{ end }}{{ end -}}
Migration of family {{ .family }}: release {{ .root.Release.Name }} in namespace {{ $namespace }}; lock, journals and reports in namespace {{ $settings.home }}.
{{ if $steps }}
Steps, in the order in which every install and upgrade of this release runs them (a step that finds nothing to do writes nothing):
{{- range $steps }}
  {{ ternary "before the chart's objects" "after the chart's objects" (eq .event "pre-upgrade") }}, weight {{ int .weight }}: {{ .name }} (at most {{ include "belay.duration" (dict "seconds" .deadline) }}{{ if .readOnly }}; only reads{{ else }} forward and {{ include "belay.duration" (dict "seconds" .undoReserve) }} to undo{{ end }})
{{- end }}
{{- else }}
All steps are switched off: nothing was migrated.
{{- end }}
{{- with $off }}
Switched off: {{ join ", " . }}
{{- end }}

How they ended, and what to do next:
  kubectl create job --namespace {{ $namespace }} --from=cronjob/{{ $status }} {{ $status }}-now
  kubectl wait --namespace {{ $namespace }} --for=jsonpath='{.status.conditions}' --timeout=1m job/{{ $status }}-now
  kubectl logs --namespace {{ $namespace }} job/{{ $status }}-now
{{- range $steps }}
{{- $name := include "belay.name" (dict "root" $.root "suffix" .name) }}

{{ .name }}
  report:   kubectl get configmap --namespace {{ $settings.home }} belay-report-{{ .name }} --output jsonpath='{.data.summary}'
  rerun:    kubectl create job --namespace {{ $namespace }} --from=cronjob/{{ $name }} {{ $name }}-again
{{- if not .readOnly }}
  restore:  kubectl create job --namespace {{ $namespace }} --from=cronjob/{{ include "belay.name" (dict "root" $.root "suffix" (printf "%s-restore" .name)) }} {{ $name }}-undo
{{- end }}
{{- end }}
{{- if $steps }}
{{- $timeout := include "belay.timeout" . | int }}

{{ if gt $timeout 300 -}}
Helm must wait longer than its default of 5m for these steps: pass --timeout {{ include "belay.duration" (dict "seconds" $timeout) }} or more to helm install and upgrade.
{{- else -}}
Helm's --timeout must be {{ include "belay.duration" (dict "seconds" $timeout) }} or more for these steps; its default of 5m is enough.
{{- end }}
{{- end }}
{{- end -}}
