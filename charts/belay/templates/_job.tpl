{{/*
What belay is told through the environment, as a JSON map. A step adds its own.
Takes: root, settings.
*/}}
{{- define "belay.environment" -}}
{{- dict
  "BELAY_NAMESPACE" .root.Release.Namespace
  "BELAY_RELEASE" .root.Release.Name
  "BELAY_HOME" .settings.home
  "BELAY_LOG_FORMAT" .settings.logFormat
  | toJson -}}
{{- end -}}

{{/*
The spec of a Job, also inside a CronJob.
Takes: root, settings, family, component, step, account, command (list), environment (map), backstop, backoffLimit.
*/}}
{{- define "belay.jobSpec" -}}
{{- $podLabels := dict -}}
{{- range $key, $value := .settings.podLabels -}}
  {{- $_ := set $podLabels $key $value -}}
{{- end -}}
{{- range $key, $value := include "belay.labels" . | fromYaml -}}
  {{- $_ := set $podLabels $key $value -}}
{{- end -}}
{{- $podAnnotations := dict -}}
{{- range $key, $value := .settings.podAnnotations -}}
  {{- $_ := set $podAnnotations $key $value -}}
{{- end -}}
{{- /* A sidecar would keep the Job alive after the step has ended. Istio reads the label, older ones the annotation. */ -}}
{{- $_ := set $podLabels "sidecar.istio.io/inject" "false" -}}
{{- $_ := set $podAnnotations "sidecar.istio.io/inject" "false" -}}
backoffLimit: {{ .backoffLimit }}
podReplacementPolicy: Failed
podFailurePolicy:
  # The first rule that matches counts: an evicted pod is replaced and uses up no retry, whatever its exit code.
  rules:
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    - action: FailJob
      onExitCodes:
        containerName: belay
        operator: In
        {{- /* 75: a run is at work. A person who restores or accepts means what is there now, not what that run will have done when a
               retry comes. A step or a cleanup is tried again. */}}
        values: {{ ternary "[2, 3, 4, 5, 6, 75]" "[2, 3, 4, 5, 6]" (has .component (list "restore" "accept")) }}
template:
  metadata:
    labels:
      {{- toYaml $podLabels | nindent 6 }}
    annotations:
      {{- toYaml $podAnnotations | nindent 6 }}
  spec:
    restartPolicy: Never
    # Here and not on the Job: a Job's own deadline deletes the pod, and with it the log and the verdict.
    activeDeadlineSeconds: {{ int .backstop }}
    terminationGracePeriodSeconds: 30
    serviceAccountName: {{ .account }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    {{- with .settings.imagePullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .settings.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .settings.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .settings.affinity }}
    affinity:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .settings.priorityClassName }}
    priorityClassName: {{ . }}
    {{- end }}
    securityContext:
      runAsNonRoot: true
      runAsUser: 65532
      runAsGroup: 65532
      seccompProfile:
        type: RuntimeDefault
    containers:
      - name: belay
        image: {{ include "belay.image" . | quote }}
        imagePullPolicy: {{ .settings.image.pullPolicy }}
        command:
          {{- toYaml .command | nindent 10 }}
        env:
          {{- range $name, $value := .environment }}
          - name: {{ $name }}
            value: {{ $value | quote }}
          {{- end }}
          - name: BELAY_POD_NAME
            valueFrom:
              fieldRef:
                fieldPath: metadata.name
          - name: BELAY_POD_NAMESPACE
            valueFrom:
              fieldRef:
                fieldPath: metadata.namespace
          - name: BELAY_POD_UID
            valueFrom:
              fieldRef:
                fieldPath: metadata.uid
          - name: BELAY_JOB_NAME
            valueFrom:
              fieldRef:
                fieldPath: metadata.labels['batch.kubernetes.io/job-name']
        terminationMessagePolicy: FallbackToLogsOnError
        resources:
          {{- toYaml .settings.resources | nindent 10 }}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
{{- end -}}

{{/*
A hook Job.
Takes: what belay.jobSpec takes, and suffix, hook, weight, deletePolicy.
*/}}
{{- define "belay.job" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "belay.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "belay.labels" . | nindent 4 }}
  annotations:
    {{- include "belay.hook" (merge (dict "logs" true) (pick . "settings" "hook" "weight" "deletePolicy")) | nindent 4 }}
spec:
  {{- include "belay.jobSpec" . | nindent 2 }}
{{- end -}}

{{/*
A CronJob that never fires: a template for `kubectl create job --from=cronjob/NAME`. A hook too, so that it is there after a
failed pre-upgrade, when it is needed.
Takes: what belay.jobSpec takes, and suffix, hook.
*/}}
{{- define "belay.cronJob" -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "belay.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "belay.labels" . | nindent 4 }}
  annotations:
    {{- include "belay.hook" (merge (dict "weight" -10 "deletePolicy" "before-hook-creation") (pick . "settings" "hook")) | nindent 4 }}
spec:
  suspend: true
  # A day that no month has: nothing starts by itself, even if somebody lifts the suspension.
  schedule: "0 0 30 2 *"
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 3
  jobTemplate:
    metadata:
      labels:
        {{- include "belay.labels" . | nindent 8 }}
    spec:
      {{- include "belay.jobSpec" . | nindent 6 }}
{{- end -}}
