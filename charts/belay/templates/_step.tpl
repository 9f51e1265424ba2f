{{/*
One step: its account and rights, its hook Job, and CronJobs to rerun it, to restore what it did and to accept what cannot
be restored; a step that only reads has nothing to restore. Nothing when the step is switched off.
Takes: root, family, step (name, weight, rbac; optional: event, args, placeholders, each, deadline, undoReserve, backstop,
readOnly, enabled); executable (optional, /belay: for an image that holds steps of its own).
*/}}
{{- define "belay.step" -}}
{{- $settings := include "belay.settings" .root | fromJson -}}
{{- $step := include "belay.resolve" . | fromJson -}}
{{- if $step.enabled -}}
{{- /* A chart that joins an old cluster is installed, not upgraded: both run the step. */ -}}
{{- $hook := ternary "pre-install,pre-upgrade" "post-install,post-upgrade" (eq $step.event "pre-upgrade") -}}
{{- $environment := include "belay.environment" (dict "root" .root "settings" $settings) | fromJson -}}
{{- $_ := set $environment "BELAY_DEADLINE" (int $step.deadline) -}}
{{- $_ := set $environment "BELAY_UNDO_RESERVE" (int $step.undoReserve) -}}
{{- $_ := set $environment "BELAY_CONCURRENCY" (int $settings.concurrency) -}}
{{- $_ := set $environment "BELAY_ON_FAILURE" $settings.onFailure -}}
{{- $name := include "belay.name" (dict "root" .root "suffix" $step.name) -}}
{{- /* A run ends its verdict with the command that runs it again: from the CronJob of this name. */ -}}
{{- $runEnvironment := set (deepCopy $environment) "BELAY_CRON_JOB" $name -}}
{{- $common := dict
  "root" .root "settings" $settings "family" .family "step" $step.name "hook" $hook "deletePolicy" "before-hook-creation"
  "account" $name
  "environment" $environment "backstop" $step.backstop "backoffLimit" 4 -}}
{{- $executable := .executable | default "/belay" -}}
{{- $run := concat (list $executable $step.name) $step.args -}}
{{- $restore := list $executable "restore" "--step" $step.name -}}
{{- $accept := list $executable "accept" "--step" $step.name -}}
---
{{ include "belay.account" (merge (dict "component" "step" "suffix" $step.name "rules" (include "belay.rules" (dict "root" .root "settings" $settings "step" $step) | fromJson)) $common) }}
---
{{ include "belay.cronJob" (merge (dict "component" "rerun" "suffix" $step.name "command" $run "environment" $runEnvironment) $common) }}
{{- if not $step.readOnly }}
---
{{ include "belay.cronJob" (merge (dict "component" "restore" "suffix" (printf "%s-restore" $step.name) "command" $restore) $common) }}
---
{{ include "belay.cronJob" (merge (dict "component" "accept" "suffix" (printf "%s-accept" $step.name) "command" $accept) $common) }}
{{- end }}
---
{{ include "belay.job" (merge (dict "component" "step" "suffix" $step.name "command" $run "environment" $runEnvironment "weight" (int $step.weight)) $common) }}
{{ end -}}
{{- end -}}
