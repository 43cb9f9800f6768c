#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs kubernetes-job.yaml and waits for its end: kubernetes-job.sh [FILE]
#
# Prints what the pods have written, each line with the name of its pod. The exit status is 0 if
# every node passed, else 1.
set -eu
manifest=${1:-$(dirname "$0")/kubernetes-job.yaml}
job=rondo-preflight
kubectl delete job "$job" --ignore-not-found
kubectl apply -f "$manifest"
# activeDeadlineSeconds of the Job ends this loop.
while state=$(kubectl get job "$job" -o 'jsonpath={.status.conditions[?(@.status=="True")].type}'); do
  case " $state " in
    *" Complete "* | *" Failed "*) break ;;
  esac
  sleep 2
done
kubectl logs -l "app=$job" --prefix --tail=-1
case " $state " in
  *" Complete "*) exit 0 ;;
esac
# Says which node each pod was on.
kubectl get pods -l "app=$job" -o wide >&2
exit 1
