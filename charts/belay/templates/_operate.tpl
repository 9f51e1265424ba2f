{{/*
What exists once per family: the status CronJob, the cleanup after `helm uninstall`, and the admission policy.
Takes: root, family, steps (all of them: what was switched off later must be cleaned up too), executable.
*/}}
{{- define "belay.operate" -}}
{{- $settings := include "belay.settings" .root | fromJson -}}
{{- $names := list -}}
{{- range .steps -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- $environment := include "belay.environment" (dict "root" .root "settings" $settings) | fromJson -}}
{{- $_ := set $environment "BELAY_FAMILY" .family -}}
{{- $common := dict "root" .root "settings" $settings "family" .family "names" $names "environment" $environment "executable" (.executable | default "/belay") -}}
---
{{ include "belay.status" $common }}
{{- if $settings.cleanup.enabled }}
---
{{ include "belay.cleanup" $common }}
{{- end }}
{{- if $settings.admissionPolicy.enabled }}
---
{{ include "belay.admissionPolicy" $common }}
{{- end }}
{{ end -}}

{{/*
`belay status` for whoever has only kubectl. Reads, by name, what the family's steps keep in their home.
Takes: root, settings, family, names, environment, executable.
*/}}
{{- define "belay.status" -}}
{{- $suffix := include "belay.operateSuffix" (dict "root" .root "family" .family "what" "status") -}}
{{- $heads := list -}}
{{- $reports := list -}}
{{- range .names -}}
  {{- $heads = append $heads (printf "belay-%s" .) -}}
  {{- $reports = append $reports (printf "belay-report-%s" .) -}}
{{- end -}}
{{- /* Heads only: they say whether a journal is open. The chunks hold the users' objects. */ -}}
{{- /* Lease and pods: without them a run that is at work would look like one that died. */ -}}
{{- $namespaced := dict .root.Release.Namespace (list
  (dict "apiGroups" (list "") "resources" (list "pods") "verbs" (list "get"))) -}}
{{- $home := list
  (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list (printf "belay-%s" .family)) "verbs" (list "get"))
  (dict "apiGroups" (list "") "resources" (list "secrets") "resourceNames" $heads "verbs" (list "get"))
  (dict "apiGroups" (list "") "resources" (list "configmaps") "resourceNames" $reports "verbs" (list "get")) -}}
{{- $_ := set $namespaced .settings.home (concat (index $namespaced .settings.home | default list) $home) -}}
{{- $common := merge (dict
  "component" "status" "step" "status" "suffix" $suffix "hook" "pre-install,pre-upgrade" "deletePolicy" "before-hook-creation"
  "account" (include "belay.name" (dict "root" .root "suffix" $suffix))
  "command" (list .executable "status") "backstop" 60 "backoffLimit" 1
  "rules" (dict "cluster" list "namespaced" $namespaced)) . -}}
{{ include "belay.account" $common }}
---
{{ include "belay.cronJob" $common }}
{{- end -}}

{{/*
Helm leaves hook objects behind when a release is uninstalled. This removes them, each by its name; reports and journals
stay. Its own objects go by themselves: they alone may carry hook-succeeded, since no step runs with their rights.
Takes: root, settings, family, names, environment, executable.
*/}}
{{- define "belay.cleanup" -}}
{{- $suffix := include "belay.operateSuffix" (dict "root" .root "family" .family "what" "cleanup") -}}
{{- $status := include "belay.operateSuffix" (dict "root" .root "family" .family "what" "status") -}}
{{- $shortNames := list (include "belay.name" (dict "root" .root "suffix" $status)) -}}
{{- $longNames := list (include "belay.longName" (dict "root" .root "suffix" $status)) -}}
{{- $heads := list -}}
{{- range $name := .names -}}
  {{- range list $name (printf "%s-restore" $name) (printf "%s-accept" $name) -}}
    {{- $shortNames = append $shortNames (include "belay.name" (dict "root" $.root "suffix" .)) -}}
  {{- end -}}
  {{- $longNames = append $longNames (include "belay.longName" (dict "root" $.root "suffix" $name)) -}}
  {{- $heads = append $heads (printf "belay-%s" $name) -}}
{{- end -}}
{{- $rbac := list "rbac.authorization.k8s.io" -}}
{{- /* Roles are looked for everywhere: an earlier release may have put them into a namespace that the values no longer name.
And Leases: where the family lives in another home, its runs need what would be removed. */ -}}
{{- $cluster := list
  (dict "apiGroups" $rbac "resources" (list "clusterrolebindings" "clusterroles" "rolebindings" "roles") "verbs" (list "list"))
  (dict "apiGroups" $rbac "resources" (list "clusterrolebindings" "clusterroles" "rolebindings" "roles") "resourceNames" $longNames "verbs" (list "delete"))
  (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "list")) -}}
{{- /* A home that is not there gets no Role below, and without one the answer to every question about it is that asking is forbidden. */ -}}
{{- if ne .settings.home .root.Release.Namespace -}}
  {{- $cluster = append $cluster (dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list .settings.home) "verbs" (list "get")) -}}
{{- end -}}
{{- $namespaced := dict .root.Release.Namespace (list
  (dict "apiGroups" (list "") "resources" (list "pods") "verbs" (list "get"))
  (dict "apiGroups" (list "batch") "resources" (list "cronjobs" "jobs") "verbs" (list "list"))
  (dict "apiGroups" (list "batch") "resources" (list "cronjobs" "jobs") "resourceNames" $shortNames "verbs" (list "delete"))
  (dict "apiGroups" (list "") "resources" (list "serviceaccounts") "verbs" (list "list"))
  (dict "apiGroups" (list "") "resources" (list "serviceaccounts") "resourceNames" $shortNames "verbs" (list "delete"))
  (dict "apiGroups" $rbac "resources" (list "rolebindings" "roles") "resourceNames" $shortNames "verbs" (list "delete"))) -}}
{{- $home := list
  (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list (printf "belay-%s" .family)) "verbs" (list "delete" "get" "update"))
  (dict "apiGroups" (list "") "resources" (list "secrets") "resourceNames" $heads "verbs" (list "get")) -}}
{{- $_ := set $namespaced .settings.home (concat (index $namespaced .settings.home | default list) $home) -}}
{{- $common := merge (dict
  "component" "cleanup" "step" "cleanup" "suffix" $suffix "hook" "post-delete" "deletePolicy" "before-hook-creation,hook-succeeded"
  "account" (include "belay.name" (dict "root" .root "suffix" $suffix))
  "command" (list .executable "cleanup") "backstop" 120 "backoffLimit" 4 "weight" 10
  "rules" (dict "cluster" $cluster "namespaced" $namespaced)) . -}}
{{ include "belay.account" $common }}
---
{{ include "belay.job" $common }}
{{- end -}}

{{/*
Whoever may create any Secret in a namespace can make a token Secret and so become any account in it, and RBAC cannot
limit a create by name or type. The policy does: the steps' accounts write journals and nothing else. Not a hook: it must stay
while the release stays. In the very first pre-upgrade it is not there yet; then RBAC is the only fence.
Takes: root, settings, family, names.
*/}}
{{- define "belay.admissionPolicy" -}}
{{- $name := include "belay.longName" (dict "root" .root "suffix" .family) -}}
{{- $users := list -}}
{{- range .names -}}
  {{- $users = append $users (printf "system:serviceaccount:%s:%s" $.root.Release.Namespace (include "belay.name" (dict "root" $.root "suffix" .))) -}}
{{- end -}}
{{- $labels := include "belay.labels" (merge (dict "component" "admission-policy" "step" "") .) -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with .settings.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [secrets]
  matchConditions:
    - name: by-a-step-of-this-release
      expression: request.userInfo.username in {{ toJson $users }}
  validations:
    - expression: has(object.type) && object.type == "belay.dev/journal"
      message: a migration step may only write Secrets of type belay.dev/journal
      reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with .settings.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end -}}
