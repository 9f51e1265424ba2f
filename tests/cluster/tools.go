//go:build tools

// Package main pins the Helm versions that the tests run, so that they share Kubernetes' compiled packages.
package main

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "helm.sh/helm/v4/cmd/helm"
)
