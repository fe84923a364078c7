package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file reads the arguments of run and lead.

const (
	defaultTTL = 30 * time.Second
	minTTL     = 100 * time.Millisecond
	maxOwner   = script.MaxLabel // bytes
)

// A job is what run or lead was asked to do.
type job struct {
	leads   bool
	nodes   nodes
	names   []string
	command []string
	given   func(flag string) bool // whether the flag is among the arguments

	once     bool
	wait     time.Duration // negative: without limit
	conflict int           // the exit status if the lock is taken
	shared   bool
	permits  int
	ttl      time.Duration
	fence    bool
	fair     bool
	priority int
	owner    string
	minHold  time.Duration

	killAfter  time.Duration
	foreground bool
}

// parseJob reads the arguments of the command run or lead. It does not read the addresses of the nodes (see nodes.read): a
// file such as <(program) can be read only once.
func parseJob(command string, args []string) (*job, error) {
	j := &job{leads: command == "lead"}
	flags := j.flags(command)
	if err := parse(command, flags, args); err != nil {
		return nil, err
	}
	dash := flags.ArgsLenAtDash()
	switch {
	case dash < 0:
		return nil, wrong("there is no -- in front of COMMAND. See redsync %s --help", command)
	case dash == 0:
		return nil, wrong("there is no NAME in front of --. See redsync %s --help", command)
	case dash == flags.NArg():
		return nil, wrong("there is no COMMAND behind --. See redsync %s --help", command)
	}
	j.names, j.command = flags.Args()[:dash], flags.Args()[dash:]
	j.given = flags.Changed
	for _, check := range []func() error{j.checkFlags, j.nodes.check, j.checkNames, j.checkTimes, j.checkOwner} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// flags returns the flags of a command, which write into j.
func (j *job) flags(command string) *pflag.FlagSet {
	f := pflag.NewFlagSet(command, pflag.ContinueOnError)
	j.nodes.define(f)
	j.ttl, j.wait = defaultTTL, -1
	f.Var((*seconds)(&j.ttl), "ttl", "")
	f.BoolVar(&j.fair, "fair", false, "")
	f.IntVar(&j.priority, "priority", 0, "")
	f.StringVar(&j.owner, "owner", "", "")
	f.Var((*seconds)(&j.killAfter), "kill-after", "")
	f.BoolVar(&j.foreground, "foreground", false, "")
	if j.leads {
		return f
	}
	f.BoolVarP(&j.once, "nonblock", "n", false, "")
	f.VarP((*seconds)(&j.wait), "wait", "w", "")
	f.IntVarP(&j.conflict, "conflict-exit-code", "E", exitTaken, "")
	f.BoolVarP(&j.shared, "shared", "s", false, "")
	f.IntVar(&j.permits, "permits", 0, "")
	f.BoolVar(&j.fence, "fence", false, "")
	f.Var((*seconds)(&j.minHold), "min-hold", "")
	return f
}

// excluding are the pairs of flags that do not go together.
var excluding = [][2]string{
	{"nonblock", "wait"},
	{"shared", "permits"},
	{"shared", "min-hold"},
	{"permits", "fence"},
}

// checkFlags returns an error if flags exclude each other, or if one is out of its range.
func (j *job) checkFlags() error {
	for _, pair := range excluding {
		if j.given(pair[0]) && j.given(pair[1]) {
			return wrong("--%s and --%s exclude each other", pair[0], pair[1])
		}
	}
	switch {
	case j.conflict < 0 || j.conflict > 255:
		return wrong("--conflict-exit-code %d is out of range: 0 to 255", j.conflict)
	case j.priority < -script.MaxPriority || j.priority > script.MaxPriority:
		return wrong("--priority %d is out of range: -%d to %[2]d", j.priority, script.MaxPriority)
	}
	if j.given("permits") {
		return checkPermits(j.permits)
	}
	return nil
}

// checkPermits returns an error if n permits are out of range.
func checkPermits(n int) error {
	if n < 1 || n > script.MaxPermits {
		return wrong("--permits %d is out of range: 1 to %d", n, script.MaxPermits)
	}
	return nil
}

// checkNames returns an error if the names cannot be locked together, or if a redsync around this one holds one of them:
// it would wait for itself for ever.
func (j *job) checkNames() error {
	several := len(j.names) > 1
	switch {
	case several && j.leads:
		return wrong("%d NAMEs: lead takes one", len(j.names))
	case several && j.shared:
		return wrong("%d NAMEs: --shared takes one", len(j.names))
	case several && j.permits > 0:
		return wrong("%d NAMEs: --permits takes one", len(j.names))
	}
	held := namesAround()
	for i, name := range j.names {
		if name == "" {
			return wrong("NAME #%d is empty", i+1)
		}
		name = j.nodes.prefix + name
		j.names[i] = name
		switch {
		case strings.ContainsAny(name, "\n\x00") || strings.ToValidUTF8(name, "") != name:
			return wrong("NAME %q is out of range: UTF-8 without line feeds, because COMMAND gets it in its environment", name)
		case slices.Contains(j.names[:i], name):
			return wrong("NAME %q is given twice", name)
		case slices.Contains(held, name):
			return wrong("NAME %q is held by the redsync around this one (see REDSYNC_NAME), for which it would wait. "+
				"If that one has ended: env -u %s -u %s redsync ...", name, nameVariable, namesVariable)
		}
	}
	return nil
}

// checkTimes returns an error if a duration is out of its range.
func (j *job) checkTimes() error {
	switch {
	case j.ttl < minTTL:
		return wrong("--ttl %v is out of range: %v or more", j.ttl, minTTL)
	case j.given("min-hold") && j.minHold <= 0:
		return wrong("--min-hold %v is out of range: more than 0", j.minHold)
	case j.given("wait") && j.wait < 0:
		return wrong("--wait %v is out of range: 0 or more", j.wait)
	case j.given("guard") && j.nodes.guard < max(j.ttl, j.keptFor()):
		return wrong("--guard %v is out of range: at least --ttl (%v) and --min-hold with its drift (%v)", j.nodes.guard, j.ttl, j.keptFor())
	case !j.given("kill-after"):
		j.killAfter = j.ttl / 3
	case j.killAfter <= 0 || j.killAfter > j.ttl/3:
		return wrong("--kill-after %v is out of range: more than 0, at most a third of --ttl (%v)", j.killAfter, j.ttl/3)
	}
	return nil
}

// keptFor returns how long the nodes keep the lock because of --min-hold, which is with its drift; 0 without it.
func (j *job) keptFor() time.Duration {
	if j.minHold == 0 {
		return 0
	}
	return j.minHold + drift(j.minHold)
}

// drift returns what the clocks of nodes may gain or lose in d: 1 % and 2 ms, as the library reckons by default.
func drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// checkOwner returns an error if the owner cannot be shown. Without --owner it makes one.
func (j *job) checkOwner() error {
	if !j.given("owner") {
		j.owner = defaultOwner()
		return nil
	}
	if err := script.CheckLabel(j.owner); err != nil {
		return wrong("--owner %q is out of range: %s; %w", j.owner, script.LabelRange, err)
	}
	return nil
}

// defaultOwner returns "user@host pid".
func defaultOwner() string {
	name, host := strconv.Itoa(os.Getuid()), "localhost"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	return ownerOf(name, host, os.Getpid())
}

// ownerOf returns "user@host pid", cut to what an owner may have.
func ownerOf(name, host string, pid int) string {
	process := fmt.Sprintf(" %d", pid)
	label := strings.Map(visible, name+"@"+host)
	return label[:min(len(label), maxOwner-len(process))] + process
}

// visible replaces what an owner may not have.
func visible(r rune) rune {
	if r <= ' ' || r >= 0x7f {
		return '?'
	}
	return r
}

// The environment of COMMAND.
const (
	nameVariable  = "REDSYNC_NAME"
	namesVariable = "REDSYNC_NAMES"
	fenceVariable = "REDSYNC_FENCE"
	nodesVariable = "REDSYNC_NODES"
)

// namesAround returns the names that redsync processes around this one hold.
func namesAround() []string {
	var held []string
	if name := os.Getenv(nameVariable); name != "" {
		held = append(held, name)
	}
	if names := os.Getenv(namesVariable); names != "" {
		held = append(held, strings.Split(names, "\n")...)
	}
	return held
}

// environment returns that of COMMAND. token is 0 without a fencing token.
func (j *job) environment(token uint64) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{nameVariable, namesVariable, fenceVariable, nodesVariable}, name)
	})
	around := namesAround()
	if len(j.names) == 1 {
		env = append(env, nameVariable+"="+j.names[0])
	}
	if len(j.names) > 1 || len(around) > 0 {
		all := slices.Concat(around, j.names)
		slices.Sort(all)
		env = append(env, namesVariable+"="+strings.Join(slices.Compact(all), "\n"))
	}
	if token != 0 {
		env = append(env, fenceVariable+"="+strconv.FormatUint(token, 10))
	}
	return env
}

// options returns those of the lock.
func (j *job) options() []redsync.Option {
	options := []redsync.Option{
		redsync.WithExpiry(j.ttl), redsync.WithWatchdog(), redsync.WithOwner(j.owner),
		redsync.WithPriority(j.priority),
	}
	if j.fair {
		options = append(options, redsync.WithFair())
	}
	if j.shared {
		options = append(options, redsync.WithShared())
	}
	if j.permits > 0 {
		options = append(options, redsync.WithPermits(j.permits))
	}
	if j.fence {
		options = append(options, redsync.WithFencing())
	}
	if j.minHold > 0 {
		options = append(options, redsync.WithMinHold(j.minHold))
	}
	return options
}

// seconds is a flag for a duration, which may be a number of seconds, as in flock(1).
type seconds time.Duration

func (s *seconds) String() string { return time.Duration(*s).String() }
func (s *seconds) Type() string   { return "DUR" }

func (s *seconds) Set(text string) error {
	if number, err := strconv.ParseFloat(text, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		if !(number > -1e9 && number < 1e9) { // also refuses what is not a number
			return errors.New("out of range: less than 1e9 seconds")
		}
		*s = seconds(math.Round(number * float64(time.Second)))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("no duration such as 10, 1.5 or 1m30s")
	}
	*s = seconds(d)
	return nil
}
