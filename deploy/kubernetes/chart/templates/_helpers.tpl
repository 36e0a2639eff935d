{{- define "fedplcc.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which Services and policies find the pods of a component: (list $ "gateway"). */ -}}
{{- define "fedplcc.selector" -}}
app.kubernetes.io/name: fedplcc
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "fedplcc.metadata" -}}
name: {{ include "fedplcc.name" (index . 0) }}-{{ index . 1 }}
labels:
  {{- include "fedplcc.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{- /* What every pod has: no right, no root, nothing written but its volumes, no variables of Services that settings would read. */ -}}
{{- define "fedplcc.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 60
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch # keys that a group may read are refused
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "fedplcc.container" -}}
image: {{ .Values.image | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "fedplcc.settings" -}}
{{- range $name, $value := . }}
- name: FEDPLCC_{{ $name | upper }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "fedplcc.volume" -}}
metadata:
  name: state
spec:
  accessModes: [ReadWriteOnce]
  {{- with .className }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .size | quote }}
{{- end }}

{{- define "fedplcc.dns" -}}
{{- with .Values.networkPolicy.dns }}
- to:
    {{- toYaml . | nindent 4 }}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}
{{- end }}

{{- define "fedplcc.monitor" -}}
{{ .Values.metrics.secret | default (printf "%s-monitor" (include "fedplcc.name" .)) }}
{{- end }}
