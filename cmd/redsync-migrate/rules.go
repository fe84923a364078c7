package main

// weight says what a person has to do about a use.
type weight int

const (
	fine weight = iota // nothing: it is not reported
	note               // nothing, usually: it is reported, and does not count
	hand               // look at it, or change it
)

// rule is what the report says of one kind of use.
type rule struct {
	weight weight
	text   string
}

// rules has each kind of use whose meaning differs from redsync v4. To no longer report a kind, give it the weight fine.
//
//nolint:gochecknoglobals // a table
var rules = map[string]rule{
	// Errors.
	"error-compared": {hand, "an error is wrapped together with its cause: use errors.Is instead of comparing"},
	"error-kept":     {hand, "where this error is found again, use errors.Is: here it comes wrapped together with its cause"},
	"error-failed":   {hand, "ErrFailed means that others have the lock; ErrNoQuorum, that nodes failed; if the context has ended, its error is inside"},
	"error-extend":   {hand, "ErrExtendFailed means that the lock is held until the old Until; confirmed too late is ErrLockAlreadyExpired"},
	"error-asserted": {hand, "this type is inside the error: use errors.As instead of the assertion"},
	"error-taken":    {note, "*ErrTaken is the outermost type where redsync v4 has it; keys that are gone are ErrLockLost"},
	"error-multi":    {hand, "*multierror.Error is inside the error: use errors.As instead of the assertion"},
	"error-text":     {hand, "the text also has the cause: use errors.Is or errors.As instead of comparing"},
	"error-contains": {note, "the words of redsync v4 stand in the text; errors.Is and errors.As are safer"},

	// Clients.
	"hook":           {hand, "pool.New does not run hooks: use pool.ViaClient(), or WithPrefix for a prefix of keys and WithHooks for metrics"},
	"mock":           {hand, "redismock answers no pool.New: give redsync a pool of one function (pool.Func), or use redsynctest"},
	"goleak":         {note, "a pool has goroutines while its client is open: close the client, or call Redsync.Close, before this looks"},
	"driver":         {hand, "there is no pool for this driver: use a go-redis v9 client for the locks, or pool.Func"},
	"driver-rueidis": {hand, "there is no pool for rueidis or valkey-go: rueidispool makes options of go-redis from their options"},
	"old":            {hand, "this is no package of redsync v4: move to v4 first"},
	"pool-own":       {hand, "a redis.Pool of your own: replace it by a pool of one function (pool.Func)"},
	"conn-own":       {hand, "a redis.Conn of your own: replace it by a pool of one function (pool.Func)"},
	"conn":           {hand, "redis.Conn, redis.Script and NewScript have no counterpart: a pool of one function (pool.Func) sends commands"},
	"pool-get":       {hand, "a pool gives no connections: send commands of your own with your client"},
	"pool-value":     {hand, "pool.New has options, too, so it is no func(redis.UniversalClient) pool.Pool: call it in a function"},

	// Options.
	"failfast-default": {note, "Lock and Unlock return once the outcome is certain: who then reads the nodes at once needs WithFailFast(false)"},
	"failfast-false":   {note, "false waits for all nodes, as in redsync v4; true is the default here, also of each Mutex without this option"},
	"genvalue":         {note, "a value may come back on its name once the lease before is over on the nodes; two processes must not use one value"},
	"setnx":            {hand, "after Until, Extend sets nothing: call Lock again; a key that Extend set again does not count"},
	"option-value":     {hand, ""}, // the text is that of optionValues

	// Methods.
	"unlock-bool":       {note, "Unlock's true also means in time (before Until); false comes with an error"},
	"after-unlock":      {hand, "Extend and Valid after Unlock are ErrNotHeld; Value and Until are empty then"},
	"name-empty":        {hand, "a lock needs a name"},
	"compare-signature": {hand, "New takes pool.Pool: the type of this function differs"},

	// The rest of the program.
	"foreign":   {hand, "its module is built with redsync v4, and has other types: move it too, or leave this use on v4"},
	"generate":  {hand, "this line names a package of redsync v4"},
	"generated": {note, "a generated file: its generator must name the new packages, too"},
	"dot":       {hand, "this package has more names, which may be in the way of yours: import it without the dot"},
	"both":      {hand, "the file imports both libraries"},
}

// drivers has what a driver's package of redsync v4 is reported as; all others are "driver".
//
//nolint:gochecknoglobals // a table
var drivers = map[string]string{"/redis/rueidis": "driver-rueidis", "/redis/valkeygo": "driver-rueidis"}

// optionValues are the constants for which an option means something else.
//
//nolint:gochecknoglobals // a table
var optionValues = map[string][]struct {
	differs func(float64) bool
	text    string
}{
	"WithTries": {
		{func(v float64) bool { return v == 0 }, "0 tries: no limit here; redsync v4 fails at once"},
		{func(v float64) bool { return v < 0 }, "a negative number of tries is an error"},
	},
	"WithExpiry":        {{func(v float64) bool { return v < 3e6 }, "an expiry of less than 3 ms is an error"}},
	"WithRetryDelay":    {{func(v float64) bool { return v < 0 }, "a negative delay is an error"}},
	"WithDriftFactor":   {{func(v float64) bool { return v < 0 || v >= 1 }, "a drift factor must be at least 0 and less than 1"}},
	"WithTimeoutFactor": {{func(v float64) bool { return v <= 0 || v > 1 }, "a timeout factor must be more than 0 and at most 1"}},
}

// words are those by which programs know errors of redsync v4.
//
//nolint:gochecknoglobals // a table
var words = []string{
	"lock already taken", "failed to acquire lock", "failed to extend lock", "failed to unlock", "lock was already expired",
	"redsync:",
}
