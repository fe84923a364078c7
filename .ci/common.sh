# What the gate, the nightly run and the release share. They source it from the root of the repository.

# With -trimpath the go command finds in its cache what a clone elsewhere has compiled.
export GOFLAGS='-buildvcs=false -trimpath'
# The compiler, the linker, linters and tests leave much garbage and keep little: they spend a tenth of their time on
# collecting it, unless they may use more memory.
export GOGC=400
# Else each program ends with a second of sleep in which the race detector waits for the other goroutines.
export GORACE=atexit_sleep_ms=0
export GOTOOLCHAIN=local
export REDSYNC_TEST_REDIS=require
export REDSYNC_TEST_SQL=require
export REDSYNC_TEST_FAKETIME=require

# step NAME COMMAND... runs one step, and says how long it took, and how much processor time. It is not for conditions:
# there bash goes on after a command that fails.
step() {
	local name=$1 status=0 took seconds user system
	shift
	took=$(mktemp)
	echo "=== $name"
	# A subshell keeps errexit, which a condition would switch off.
	set +e
	{ TIMEFORMAT='%0R %0U %0S'; time { (set -e; "$@") 2>&3; }; } 3>&2 2>"$took"
	status=$?
	set -e
	read -r seconds user system < <(tail -1 "$took")
	rm "$took"
	took="$seconds s, $((user + system)) s of processor time"
	[ -z "${REDSYNC_GATE_NOTES:-}" ] || echo "$seconds $name, ${took#*, }" >>"$REDSYNC_GATE_NOTES/steps"
	if [ $status -ne 0 ]; then
		echo "--- FAILED: $name ($took)" >&2
		exit 1
	fi
	echo "--- $name ($took)"
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_tools() {
	local missing=() no_cluster=
	command -v redis-server >/dev/null || missing+=(redis-server)
	command -v gcc >/dev/null || missing+=(gcc libc6-dev) # the race detector needs it
	compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing+=(faketime) # clocks of servers
	# Of the databases only the programs, which the tests start: these packages of MariaDB have no service, and the
	# file keeps the package of PostgreSQL from making a database and starting it.
	[ -x /usr/sbin/mariadbd ] && command -v mariadb-install-db >/dev/null ||
		missing+=(mariadb-server-core mariadb-client-core)
	if ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
		missing+=(postgresql)
		no_cluster=/etc/postgresql-common/createcluster.d/redsync.conf
		as_root mkdir -p "${no_cluster%/*}"
		as_root tee "$no_cluster" <<<'create_main_cluster = false' >/dev/null
	fi
	if [ ${#missing[@]} -gt 0 ]; then
		as_root apt-get update
		as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
	fi
	[ -z "$no_cluster" ] || as_root rm "$no_cluster"
	command -v promtool >/dev/null || install_promtool
	go version
	redis-server --version
	/usr/sbin/mariadbd --version
	ls -d /usr/lib/postgresql/*
}

# install_promtool takes one program out of the package prometheus, which would also start a server and bring fonts.
install_promtool() {
	local dir
	dir=$(mktemp -d)
	[ -n "$(apt-cache policy prometheus)" ] || as_root apt-get update
	(cd "$dir" && apt-get download prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool)
	as_root install "$dir/usr/bin/promtool" /usr/local/bin/
	rm -r "$dir"
}

# alert_rules runs the tests of the alert rules.
alert_rules() { promtool test rules redsyncotel/alerts_test.yml; }

# all_but_servers makes links in directory $1 to the programs on PATH, without those of Redis and Valkey.
all_but_servers() {
	local dir program IFS=:
	for dir in $PATH; do
		for program in "$dir"/*; do
			case ${program##*/} in redis-* | valkey-*) continue ;; esac
			[ ! -x "$program" ] || [ -e "$1/${program##*/}" ] || ln -sf "$program" "$1/"
		done
	done
}

imported=(redsyncgocron redsyncotel rueidispool) # the directories of the modules that users import

# nested_modules prints the directories of all modules but the root.
nested_modules() {
	find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -printf '%h\n' | sort
}

# unchanged fails if something that ran here, or the go command's look at all modules of the
# workspace, has left a change in the checkout.
unchanged() {
	local now
	go list -m all >/dev/null
	now=$(git status --porcelain)
	[ "$now" = "$before" ] || { echo "the checkout was: $before" >&2; echo "and is: $now" >&2; return 1; }
}

started=$SECONDS
before=$(git status --porcelain)
