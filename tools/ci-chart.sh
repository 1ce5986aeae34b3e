#!/usr/bin/env bash
# The chart in deploy/helm/rserve: it renders with several sets of values, what it renders is what Kubernetes takes, bad values are
# refused, and deploy/kubernetes.yaml is what it renders.
#
#   bash tools/ci-chart.sh            checks
#   bash tools/ci-chart.sh --write    writes deploy/kubernetes.yaml
#
# HELM is the program. The schemas of Kubernetes come with the Python package kubernetes-validate, which a folder of its own gets
# from pip. Says SKIPPED where one of them is not at hand. A cluster is not needed, and none was tried.
set -euo pipefail
cd "$(dirname "$0")/../deploy"
helm=${HELM:-helm}
command -v "$helm" >/dev/null || { echo "SKIPPED: the chart was not checked: no helm"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data
render() { "$helm" template rserve helm/rserve --namespace default "$@"; }

plain() {
    cat <<'EOF'
# rserve on Kubernetes without Helm: what the chart in helm/rserve renders, with autoscaling; `bash tools/ci-chart.sh --write` writes it.
# It was checked against the schemas of Kubernetes and not run in a cluster. Put the image that Containerfile makes at IMAGE, the model
# on the volume claim `models` as model.gguf, and keys into the secret `rserve-keys` under `keys`, one a line. The autoscaler needs an
# adapter for its metric: prometheus-adapter with helm/prometheus-adapter.yaml.
EOF
    render --skip-tests --set image.repository=IMAGE,model.claim=models,keysSecret=rserve-keys,autoscaling.enabled=true |
        grep -v -e '^# Source' -e 'managed-by: Helm' -e 'helm.sh/chart' | sed 's/IMAGE:.*/IMAGE/'
}
if [ "${1:-}" = --write ]; then
    plain >kubernetes.yaml
    exit 0
fi
"$helm" lint --quiet --strict helm/rserve --set image.repository=r,model.claim=models
plain | diff - kubernetes.yaml || { echo "error: kubernetes.yaml is not what the chart renders" >&2; exit 1; }
echo "kubernetes.yaml: what the chart renders"

sets=(
    image.repository=r,model.claim=models
    image.repository=r,model.url=https://example.org/m.gguf,keysSecret=k,replicas=1,minAvailable=0
    image.repository=r,model.hfRepo=USER/REPO:Q4_K_M,model.hfTokenSecret=t,autoscaling.enabled=true,autoscaling.min=1,autoscaling.max=3
    image.repository=r,image.tag=x,image.pullSecrets={a\,b},model.claim=m,options.PARALLEL=8,options.TEMP=0.5,options.METRICS=true,options.CTX_SIZE=1048576
    image.repository=r,model.claim=m,service.type=LoadBalancer,service.port=80,podAnnotations.a=b,nodeSelector.a=b
)
for i in "${!sets[@]}"; do render --set "${sets[$i]}" >"$work/$i.yaml"; done
# Numbers are written as they were given.
grep -q 'RSERVE_CTX_SIZE, value: "1048576"' "$work/3.yaml"
grep -q 'RSERVE_TEMP, value: "0.5"' "$work/3.yaml"
if python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0; then
    for file in "$work"/?.yaml kubernetes.yaml; do
        "$work/venv/bin/kubernetes-validate" --strict --quiet -k 1.30 -k 1.37 "$file" || { cat "$file"; exit 1; }
    done
    echo "schemas of Kubernetes 1.30 and 1.37: $((${#sets[@]} + 1)) files"
else
    echo "SKIPPED: the schemas of Kubernetes were not asked: pip cannot fetch kubernetes-validate"
fi

bad=(
    model.claim=m "image.repository"
    image.repository=r "give one of"
    image.repository=r,model.claim=m,model.url=https://example.org/m.gguf "give one of"
    image.repository=r,model.claim=m,model.path=/models/a.gguf "model/path"
    image.repository=r,model.claim=m,replica=3 "replica"
    image.repository=r,model.claim=m,options.parallel=3 "parallel"
    image.repository=r,model.claim=m,autoscaling.enabled=true,autoscaling.min=9 "min is more than max"
)
for ((i = 0; i < ${#bad[@]}; i += 2)); do
    if render --set "${bad[$i]}" >/dev/null 2>"$work/said"; then
        echo "error: ${bad[$i]} was taken" >&2
        exit 1
    fi
    grep -q "${bad[$((i + 1))]}" "$work/said" || { cat "$work/said" >&2; exit 1; }
done
echo "values that make no sense are refused: $((${#bad[@]} / 2))"
