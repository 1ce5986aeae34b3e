#!/usr/bin/env bash
# Compiles the shaders to SPIR-V and checks them, with glslang-tools and spirv-tools of Debian.
set -euo pipefail
cd "$(dirname "$0")/shaders"
compile() {
    glslangValidator -V --target-env vulkan1.1 "${@:3}" "$1" -o "$2.spv" >/dev/null
    spirv-val --target-env vulkan1.1 "$2.spv"
}
for shader in product_q8_0 product_tq2_0 encode_q8_0 rms_norm attention; do
    compile "$shader.comp" "$shader"
done
# With the division and the root that Vulkan has.
for shader in encode_q8_0 rms_norm; do
    compile "$shader.comp" "${shader}_plain" -DPLAIN
done
