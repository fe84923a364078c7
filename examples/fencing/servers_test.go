package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// envSQL is the environment variable that decides what the tests do if PostgreSQL or MariaDB is
// missing: with the value realredis.Require they fail, otherwise they are skipped.
const envSQL = "REDSYNC_TEST_SQL"

// Environment variables with the data source names of servers to test with, in place of those
// that the tests start. The tests create schemas or databases there, and drop them.
const (
	envPostgreSQL = "FENCING_POSTGRES" // postgres://user@host/database
	envMySQL      = "FENCING_MYSQL"    // user@tcp(host:3306)/database
)

const (
	launchTries  = 3 // another process may take a free port first
	readyTimeout = time.Minute
	stopTimeout  = 20 * time.Second
)

// The servers run from the first test that needs them until TestMain has run all tests.
var (
	postgreSQL = sync.OnceValues(startPostgreSQL)
	mariaDB    = sync.OnceValues(startMariaDB)
	atEnd      []func() // end the servers, and remove their files
)

// stopServers ends the servers and removes their files.
func stopServers() {
	for _, end := range slices.Backward(atEnd) {
		end()
	}
}

// errMissing means that a database is not installed.
type errMissing string

func (e errMissing) Error() string { return string(e) }

// find returns the path of a program that is on PATH, or else in one of the folders that match
// place. Of several it takes that of the newest version.
func find(name, place string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.EvalSymlinks(path)
	}
	paths, err := filepath.Glob(filepath.Join(place, name))
	if err != nil {
		return "", err
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // 9 is older than 15
	})
	for _, path := range slices.Backward(paths) {
		if path, err = exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return "", errMissing(fmt.Sprintf("%s is neither on PATH nor in %s", name, place))
}

// startPostgreSQL returns the data source name of a new PostgreSQL server.
func startPostgreSQL() (string, error) {
	initdb, err := find("initdb", "/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", errMissing(err.Error() + ": apt-get install postgresql, or brew install postgresql")
	}
	address, err := startServer(initdb, `BINARY -D DIR/data -U postgres --auth trust --no-sync --no-locale --encoding UTF8`,
		`BINDIR/postgres -D DIR/data -p PORT -c listen_addresses=HOST -c unix_socket_directories=
			-c fsync=off -c full_page_writes=off -c autovacuum=off -c deadlock_timeout=20ms`,
		"database system is ready to accept connections", syscall.SIGQUIT)
	return "postgres://postgres@" + address + "/postgres?sslmode=disable", err
}

// startMariaDB returns the data source name of a new MariaDB server.
func startMariaDB() (string, error) {
	daemon, err := find("mariadbd", "/usr/sbin")
	for _, other := range []string{"mariadb-install-db", "my_print_defaults"} { // the first is a script that calls the second
		if err == nil {
			_, err = exec.LookPath(other)
		}
	}
	if err != nil {
		return "", errMissing(err.Error() + ": apt-get install mariadb-server-core mariadb-client-core, or brew install mariadb")
	}
	address, err := startServer(daemon, `mariadb-install-db --no-defaults --datadir=DIR/data --tmpdir=DIR
			--auth-root-authentication-method=normal --skip-test-db --skip-name-resolve
			--innodb-log-file-size=8M --innodb-flush-log-at-trx-commit=0`,
		`BINARY --no-defaults --datadir=DIR/data --tmpdir=DIR --bind-address=HOST --port=PORT
			--socket=DIR/socket --pid-file=DIR/pid --skip-name-resolve --innodb-log-file-size=8M
			--innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync`,
		"ready for connections", syscall.SIGKILL)
	return "root@tcp(" + address + ")/mysql", err
}

// startServer prepares the files of a server in an empty folder, starts it on a free loopback port, and returns its address when the
// log has the text ready. Command lines have DIR for the folder.
func startServer(binary, prepares, serves, ready string, stop os.Signal) (address string, err error) {
	dir, err := newFolder()
	if err != nil {
		return "", err
	}
	words := func(line string, names ...string) []string {
		all := strings.Fields(line)
		for i, word := range all {
			all[i] = strings.NewReplacer(append(names, "BINARY", binary, "BINDIR", filepath.Dir(binary), "DIR", dir)...).Replace(word)
		}
		return all
	}
	if err := prepare(words(prepares)); err != nil {
		return "", err
	}
	for range launchTries {
		if address, err = realredis.FreeAddr(); err != nil {
			return "", err
		}
		host, port, _ := net.SplitHostPort(address)
		if err = start(filepath.Join(dir, "log"+port), ready, stop, words(serves, "HOST", host, "PORT", port)); err == nil {
			return address, nil
		}
	}
	return "", err
}

// unprivileged returns the attributes of the databases' processes: they end with this process, if
// the system supports that, and are nobody's where this process is root's, as PostgreSQL demands.
func unprivileged() *syscall.SysProcAttr {
	attributes := realredis.EndWithParent()
	if os.Getuid() != 0 {
		return attributes
	}
	if attributes == nil {
		attributes = new(syscall.SysProcAttr)
	}
	attributes.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	return attributes
}

const nobody = 65534

// newFolder returns an empty folder in which the databases' processes may write.
func newFolder() (string, error) {
	dir, err := os.MkdirTemp("", "redsync-sql")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	return dir, err
}

// prepare runs a program that prepares the files of a server.
func prepare(command []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.SysProcAttr = unprivileged()
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return nil
}

// start starts a server. The signal stop ends it fast, and without leftovers in the system.
func start(log, ready string, stop os.Signal, command []string) error {
	file, err := os.Create(log)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd, exit := exec.CommandContext(ctx, command[0], command[1:]...), make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.SysProcAttr = file, file, "/", unprivileged()
	cmd.Cancel = func() error { return cmd.Process.Signal(stop) }
	cmd.WaitDelay = stopTimeout
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	go func() {
		cmd.Wait() // its error does not matter
		close(exit)
	}()
	end := func() {
		cancel()
		<-exit
	}
	if err := realredis.AwaitLog(cmd, exit, log, 0, ready, readyTimeout); err != nil {
		end()
		return err
	}
	atEnd = append(atEnd, end)
	return nil
}

// A session says how a test is connected to a server. The zero value is the driver's default.
type session struct {
	params map[string]string // variables of the server
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	user   string
	// charset is that of the connection, in MySQL.
	charset string
	// plain means without prepared statements. In MySQL the number of affected rows is then that of the rows
	// found, not of those changed.
	plain bool
}

// serverDSN returns the data source name of a server: that in the environment variable env, or of
// one that start has started.
func serverDSN(t *testing.T, env string, start func() (string, error)) string {
	if dsn := os.Getenv(env); dsn != "" {
		return dsn
	}
	dsn, err := start()
	var missing errMissing
	if errors.As(err, &missing) {
		realredis.Missing(t, envSQL, err)
	}
	require.NoError(t, err)
	return dsn
}

// A place is an empty schema of a PostgreSQL server, or an empty database of a MySQL server. The end of the test
// drops it.
type place struct {
	postgres *pgx.ConnConfig
	mysql    *mysql.Config
}

// newPlace returns a place on the server of that kind.
func newPlace(t *testing.T, kind string) place {
	var p place
	name := "fencing_" + strings.ToLower(rand.Text())
	create, drop := "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE"
	var err error
	if kind == kindPostgreSQL {
		p.postgres, err = pgx.ParseConfig(serverDSN(t, envPostgreSQL, postgreSQL))
	} else {
		create, drop = "CREATE DATABASE "+name, "DROP DATABASE "+name
		p.mysql, err = mysql.ParseDSN(serverDSN(t, envMySQL, mariaDB))
	}
	require.NoError(t, err)
	owner := p.open(t, session{})
	_, err = owner.ExecContext(t.Context(), create)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := owner.ExecContext(context.Background(), drop)
		require.NoError(t, err)
	})
	if kind == kindPostgreSQL {
		p.postgres.RuntimeParams["search_path"] = name
	} else {
		p.mysql.DBName = name
	}
	return p
}

// address returns the data source name of the place, and the host and port in it.
func (p place) address() (dsn, server string) {
	if p.mysql != nil {
		return p.mysql.FormatDSN(), p.mysql.Addr
	}
	c := p.postgres
	server = net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	at := url.URL{
		Scheme: "postgres", User: url.UserPassword(c.User, c.Password), Host: server, Path: c.Database,
		RawQuery: "sslmode=disable&search_path=" + c.RuntimeParams["search_path"],
	}
	return at.String(), server
}

// open returns new connections to the place. The end of the test closes them.
func (p place) open(t *testing.T, s session) *sql.DB {
	var db *sql.DB
	if p.postgres != nil {
		db = openPostgreSQL(p.postgres.Copy(), s)
	} else {
		db = openMySQL(t, p.mysql.Clone(), s)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func openPostgreSQL(c *pgx.ConnConfig, s session) *sql.DB {
	maps.Copy(c.RuntimeParams, s.params)
	if s.dial != nil {
		c.DialFunc = s.dial
	}
	if s.user != "" {
		c.User = s.user
	}
	if s.plain {
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}
	return stdlib.OpenDB(*c)
}

func openMySQL(t *testing.T, c *mysql.Config, s session) *sql.DB {
	c.Logger = &mysql.NopLogger{} // it would write of connections that tests cut
	if len(s.params) > 0 {
		c.Params = s.params
	}
	if s.dial != nil {
		c.DialFunc = s.dial
	}
	if s.user != "" {
		c.User = s.user
	}
	if s.charset != "" {
		require.NoError(t, c.Apply(mysql.Charset(s.charset, "")))
	}
	c.InterpolateParams, c.ClientFoundRows = s.plain, s.plain
	connector, err := mysql.NewConnector(c)
	require.NoError(t, err)
	return sql.OpenDB(connector)
}
