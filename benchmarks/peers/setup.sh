#!/usr/bin/env bash
# Sets up what the benchmarks measure beside this store, each in a virtual environment of its own (Mooncake's
# wheel installs commands of the same names as ours). A peer that cannot be had is named and left out.
#
#   benchmarks/peers/setup.sh [mooncake] [redis] [memcached] [plot]      (nothing named: all of them)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
python="${PYTHON:-python3}"
export PIP_DISABLE_PIP_VERSION_CHECK=1

declare -A requirements=(
    [mooncake]="mooncake-transfer-engine-non-cuda==0.3.13.post1 numpy"
    [redis]="redis==5.2.1 hiredis==3.1.0"
    [memcached]="pymemcache==4.0.0"
    [plot]="matplotlib"
)
declare -A debian=(
    [mooncake]="libibverbs1 librdmacm1 libnuma1 libcurl4"
    [redis]="redis-server"
    [memcached]="memcached"
    [plot]=""
)

lacking() { # the Debian packages of a peer that are not installed
    for package in ${debian[$1]}; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

install_packages() {
    if [[ "$(id -u)" != 0 ]]; then
        return 1
    fi
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"
}

names=("$@")
((${#names[@]})) || names=(mooncake redis memcached plot)
failed=0
for name in "${names[@]}"; do
    if [[ -z "${requirements[$name]:-}" ]]; then
        echo "$name: no such peer; there are ${!requirements[*]}" >&2
        exit 2
    fi
    mapfile -t packages < <(lacking "$name")
    if ((${#packages[@]})) && ! install_packages "${packages[@]}"; then
        echo "$name: skipped, it needs: apt-get install ${packages[*]}"
        failed=1
        continue
    fi
    # shellcheck disable=SC2086  # the requirements are several words
    if { test -x "venvs/$name/bin/python" || "$python" -m venv "venvs/$name"; } \
        && "venvs/$name/bin/pip" install -q ${requirements[$name]}; then
        echo "$name: ready"
    else
        echo "$name: skipped, pip could not install ${requirements[$name]}"
        failed=1
    fi
done
exit $failed
