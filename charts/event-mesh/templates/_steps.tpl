{{/*
The steps of the family, as a JSON array for the library's templates, in the order in which they run. Their arguments and the namespaces
in their rules come from the same values, so that a Job never asks for more than its account may do.
*/}}
{{- define "event-mesh.steps" -}}
{{- $steps := list -}}
{{- range list "create-missing-sources" "recreate-service-instances" "recreate-triggers" "verify-event-services" "retire-subscriptions" "scale-down-legacy" "purge-legacy" -}}
  {{- $values := index $.Values.steps . -}}
  {{- $step := include (printf "event-mesh.%s" .) (dict "root" $ "values" $values) | fromJson -}}
  {{- $_ := set $step "name" . -}}
  {{- $_ := set $step "rbac" ($.Files.Get (printf "rbac/%s.json" .) | fromJson) -}}
  {{- $steps = append $steps $step -}}
{{- end -}}
{{- toJson $steps -}}
{{- end -}}

{{/*
A flag for each of a list of values, as a JSON array.
Takes: flag, values.
*/}}
{{- define "event-mesh.repeated" -}}
{{- $args := list -}}
{{- range .values -}}
  {{- $args = concat $args (list $.flag .) -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}

{{/*
The flags of a step that works in the users' namespaces, as a JSON array.
Takes: root.
*/}}
{{- define "event-mesh.userNamespaces" -}}
{{- $values := .root.Values.userNamespaces -}}
{{- concat
  (include "event-mesh.repeated" (dict "flag" "--only-namespace" "values" $values.only) | fromJsonArray)
  (include "event-mesh.repeated" (dict "flag" "--exclude-namespace" "values" $values.exclude) | fromJsonArray)
  | toJson -}}
{{- end -}}

{{/*
The flags that say what event-services there must be, and whom the step must ask for it, as JSON {args, each}.
Takes: root.
*/}}
{{- define "event-mesh.eventServices" -}}
{{- $values := .root.Values.eventServices -}}
{{- $operator := splitList "/" $values.applicationOperator -}}
{{- $each := dict "operatorDeployment" list "operatorStatefulSet" list -}}
{{- if not $values.images -}}
  {{- $_ := set $each (printf "operator%s" (first $operator)) (list (dict "namespace" (index $operator 1) "name" (last $operator))) -}}
{{- end -}}
{{- dict
  "args" (concat
    (list
      "--integration-namespace" .root.Values.integrationNamespace
      "--application-operator" $values.applicationOperator)
    (include "event-mesh.repeated" (dict "flag" "--expect-image" "values" $values.images) | fromJsonArray))
  "each" $each
  | toJson -}}
{{- end -}}

{{/*
Placeholders for the Deployment that serves the finalizers, as JSON.
Takes: root.
*/}}
{{- define "event-mesh.subscriptionController" -}}
{{- $controller := splitList "/" .root.Values.subscriptionController -}}
{{- dict "subscriptionControllerNamespace" (first $controller) "subscriptionControllerName" (last $controller) | toJson -}}
{{- end -}}

{{/*
What the rules say of each kind of owner that a step looks up, as a JSON array.
Takes: values.
*/}}
{{- define "event-mesh.owners" -}}
{{- $owners := list -}}
{{- range .values.ownerKinds -}}
  {{- /* Without a group it is one of the core's, which has none. */ -}}
  {{- $kind := splitn "." 2 . -}}
  {{- $owners = append $owners (dict "resource" $kind._0 "group" ($kind._1 | default "")) -}}
{{- end -}}
{{- toJson $owners -}}
{{- end -}}

{{- define "event-mesh.create-missing-sources" -}}
{{- $controller := splitList "/" .values.sourceController -}}
{{- dict
  "args" (list
    "--integration-namespace" .root.Values.integrationNamespace
    "--source-controller" .values.sourceController
    "--ready-within" (int .values.readyWithin | toString))
  "placeholders" (dict
    "integrationNamespace" .root.Values.integrationNamespace
    "sourceControllerNamespace" (first $controller)
    "sourceControllerName" (last $controller))
  | toJson -}}
{{- end -}}

{{- define "event-mesh.recreate-service-instances" -}}
{{- dict
  "args" (concat
    (list
      "--integration-namespace" .root.Values.integrationNamespace
      "--subscription-controller" .root.Values.subscriptionController
      "--recreate" .values.recreate
      "--gone-within" (int .values.goneWithin | toString)
      "--provisioned-within" (int .values.provisionedWithin | toString)
      "--linked-within" (int .values.linkedWithin | toString))
    (include "event-mesh.repeated" (dict "flag" "--owner-kind" "values" .values.ownerKinds) | fromJsonArray)
    (include "event-mesh.userNamespaces" . | fromJsonArray))
  "placeholders" (include "event-mesh.subscriptionController" . | fromJson | merge (dict
    "integrationNamespace" .root.Values.integrationNamespace))
  "each" (dict "owner" (include "event-mesh.owners" . | fromJsonArray))
  | toJson -}}
{{- end -}}

{{- define "event-mesh.recreate-triggers" -}}
{{- dict
  "args" (concat
    (list
      "--subscription-controller" .root.Values.subscriptionController
      "--ready-within" (int .values.readyWithin | toString))
    (ternary (list "--drop-undeliverable") list (.root.Values.dropUndeliverable | default false))
    (include "event-mesh.userNamespaces" . | fromJsonArray))
  "placeholders" (include "event-mesh.subscriptionController" . | fromJson)
  | toJson -}}
{{- end -}}

{{- define "event-mesh.verify-event-services" -}}
{{- $expected := include "event-mesh.eventServices" . | fromJson -}}
{{- dict
  "readOnly" true
  "args" $expected.args
  "placeholders" (dict "integrationNamespace" .root.Values.integrationNamespace)
  "each" $expected.each
  | toJson -}}
{{- end -}}

{{- define "event-mesh.retire-subscriptions" -}}
{{- $expected := include "event-mesh.eventServices" . | fromJson -}}
{{- dict
  "weight" (ternary 35 20 (eq .values.event "pre-upgrade"))
  "args" (concat
    $expected.args
    (list
      "--subscription-controller" .root.Values.subscriptionController
      "--gone-within" (int .values.goneWithin | toString))
    (ternary (list "--accept-event-loss") list (.values.acceptEventLoss | default false))
    (ternary (list "--drop-undeliverable") list (.root.Values.dropUndeliverable | default false))
    (include "event-mesh.repeated" (dict "flag" "--owner-kind" "values" .values.ownerKinds) | fromJsonArray)
    (include "event-mesh.userNamespaces" . | fromJsonArray))
  "placeholders" (include "event-mesh.subscriptionController" . | fromJson | merge (dict
    "integrationNamespace" .root.Values.integrationNamespace))
  "each" ($expected.each | merge (dict "owner" (include "event-mesh.owners" . | fromJsonArray)))
  | toJson -}}
{{- end -}}

{{- define "event-mesh.purge-legacy" -}}
{{- dict
  "args" (list
    "--legacy-namespace" .root.Values.legacyNamespace
    "--legacy-release" .values.legacyRelease
    "--gone-within" (int .values.goneWithin | toString))
  "placeholders" (dict "legacyNamespace" .root.Values.legacyNamespace)
  | toJson -}}
{{- end -}}

{{- define "event-mesh.scale-down-legacy" -}}
{{- $args := list -}}
{{- $each := dict "deployment" list "statefulset" list "replicaset" list "refuseWhile" list "release" list -}}
{{- range .values.workloads -}}
  {{- $namespace := .namespace | default $.root.Values.legacyNamespace -}}
  {{- $args = concat $args (list "--workload" (printf "%s/%s/%s" .kind $namespace .name)) -}}
  {{- $group := lower .kind -}}
  {{- $_ := set $each $group (append (index $each $group) (dict "namespace" $namespace "name" .name)) -}}
{{- end -}}
{{- range .values.refuseWhile -}}
  {{- $args = concat $args (list "--refuse-while" .) -}}
  {{- $kind := splitn "." 2 (splitList ":" . | first) -}}
  {{- /* As the placeholders in rbac/scale-down-legacy.json have it. */ -}}
  {{- $_ := set $each "refuseWhile" (append $each.refuseWhile (dict "resource" $kind._0 "api.group" $kind._1)) -}}
{{- end -}}
{{- range .values.releaseFinalizers -}}
  {{- $args = concat $args (list "--release-finalizer" .) -}}
  {{- $kind := splitn "." 2 (splitList "=" . | first) -}}
  {{- $_ := set $each "release" (append $each.release (dict "resource" $kind._0 "api.group" $kind._1)) -}}
{{- end -}}
{{- if .values.mustExist -}}
  {{- $args = append $args "--must-exist" -}}
{{- end -}}
{{- dict "args" $args "each" $each | toJson -}}
{{- end -}}
