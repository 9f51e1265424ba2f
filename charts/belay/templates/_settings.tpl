{{/*
What holds when neither the chart nor its user says otherwise. A chart that uses the library need not repeat any of it.
*/}}
{{- define "belay.defaults" -}}
image:
  repository: belay
  tag: dev
  digest: ""
  pullPolicy: IfNotPresent
imagePullSecrets: []
nodeSelector: {}
tolerations: []
affinity: {}
priorityClassName: ""
resources:
  requests:
    cpu: 100m
    memory: 64Mi
  limits:
    cpu: "1"
    memory: 128Mi
labels: {}
annotations: {}
podLabels: {}
podAnnotations: {}
home: ""
logFormat: text
onFailure: step
concurrency: 32
admissionPolicy:
  enabled: true
cleanup:
  enabled: true
{{- end -}}

{{/*
The common settings of a chart as JSON: its values over the defaults. Maps with fixed keys are merged key by key, all
else is replaced. Not mergeOverwrite: that one takes false and 0 for "not set".
Takes: the root context.
*/}}
{{- define "belay.settings" -}}
{{- $settings := include "belay.defaults" . | fromYaml -}}
{{- $values := .Values -}}
{{- range $key, $default := $settings -}}
  {{- if hasKey $values $key -}}
    {{- $value := index $values $key -}}
    {{- if has $key (list "image" "admissionPolicy" "cleanup") -}}
      {{- range $k, $v := $value -}}
        {{- $_ := set $default $k $v -}}
      {{- end -}}
    {{- else -}}
      {{- $_ := set $settings $key $value -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set $settings "home" ($settings.home | default .Release.Namespace) -}}
{{- toJson $settings -}}
{{- end -}}

{{/*
One step with everything decided, as JSON: the user's `steps.NAME` over what the chart's author wrote over the defaults. A list
`only` in the values leaves the named steps and no others, whatever their `enabled` says. The author's arguments come first, the user's follow. What cannot work is refused here, before Helm has touched anything.
Takes: root, step.
*/}}
{{- define "belay.resolve" -}}
{{- $name := required "belay: a step needs a name" .step.name -}}
{{- $values := index (.root.Values.steps | default dict) $name | default dict -}}
{{- $step := dict "enabled" true "event" "pre-upgrade" "deadline" 180 "undoReserve" 60 "backstop" 270 "readOnly" false -}}
{{- range $key, $value := .step -}}
  {{- $_ := set $step $key $value -}}
{{- end -}}
{{- range $key, $value := pick $values "enabled" "event" "weight" "deadline" "undoReserve" "backstop" -}}
  {{- $_ := set $step $key $value -}}
{{- end -}}
{{- with .root.Values.only -}}
  {{- $_ := set $step "enabled" (has $name .) -}}
{{- end -}}
{{- $args := .step.args | default list -}}
{{- range $values.exclude -}}
  {{- $args = concat $args (list "--exclude" .) -}}
{{- end -}}
{{- $_ := set $step "args" (concat $args ($values.args | default list)) -}}
{{- if not (hasKey $step "weight") -}}
  {{- fail (printf "belay: step %s has no weight: Helm would order it by its name" $name) -}}
{{- end -}}
{{- if lt (int $step.weight) 1 -}}
  {{- fail (printf "belay: step %s has weight %d: it must be at least 1, after its account and rights" $name (int $step.weight)) -}}
{{- end -}}
{{- if not (has $step.event (list "pre-upgrade" "post-upgrade")) -}}
  {{- fail (printf "belay: step %s has event %q: it must be pre-upgrade or post-upgrade" $name $step.event) -}}
{{- end -}}
{{- if and (not $step.readOnly) (lt (int $step.undoReserve) 1) -}}
  {{- fail (printf "belay: step %s has undoReserve 0: it changes objects, so it needs time to put them back" $name) -}}
{{- end -}}
{{- if gt (add (int $step.deadline) (int $step.undoReserve)) (int $step.backstop) -}}
  {{- fail (printf "belay: step %s: deadline %d + undoReserve %d is more than the backstop %d: the pod would be killed while it undoes" $name (int $step.deadline) (int $step.undoReserve) (int $step.backstop)) -}}
{{- end -}}
{{- if or (not (kindIs "map" $step.rbac)) (not (hasKey ($step.rbac | default dict) "clusterRules")) (not (hasKey ($step.rbac | default dict) "namespaced")) -}}
  {{- fail (printf "belay: step %s has no rules: pass what `belay %s --print-rbac` prints, parsed, as rbac" $name $name) -}}
{{- end -}}
{{- toJson $step -}}
{{- end -}}

{{/*
The steps that are switched on, as a JSON array in the order in which Helm runs them. Two of one event with the same
weight are refused: Helm would order them by their names.
Takes: root, steps.
*/}}
{{- define "belay.enabledSteps" -}}
{{- $byOrder := dict -}}
{{- range .steps -}}
  {{- $step := include "belay.resolve" (dict "root" $.root "step" .) | fromJson -}}
  {{- if $step.enabled -}}
    {{- $order := printf "%d %010d" (ternary 0 1 (eq $step.event "pre-upgrade")) (int $step.weight) -}}
    {{- if hasKey $byOrder $order -}}
      {{- fail (printf "belay: steps %s and %s both run at %s with weight %d: give them different weights" (index $byOrder $order).name $step.name $step.event (int $step.weight)) -}}
    {{- end -}}
    {{- $_ := set $byOrder $order $step -}}
  {{- end -}}
{{- end -}}
{{- $steps := list -}}
{{- range keys $byOrder | sortAlpha -}}
  {{- $steps = append $steps (index $byOrder .) -}}
{{- end -}}
{{- toJson $steps -}}
{{- end -}}

{{/*
The image, by digest where one is given.
Takes: settings.
*/}}
{{- define "belay.image" -}}
{{- $image := .settings.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository $image.tag -}}
{{- end -}}
{{- end -}}
