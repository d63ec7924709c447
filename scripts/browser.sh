#!/usr/bin/env bash
# Chromium for the browser tests: installed on Debian where that is possible, asked for loudly elsewhere.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium for the browser tests …"
  if apt-get -qq update >/dev/null 2>&1 &&
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null 2>&1; then
    exit 0
  fi
fi

cat >&2 <<'NOTICE'
******************************************************************************
* No Chromium here and it can't be installed: the BROWSER TESTS ARE SKIPPED. *
* Install it (Debian: apt-get install chromium) and run the tests again.     *
******************************************************************************
NOTICE
