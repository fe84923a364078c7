package v4scenes

// A Driver is one with which redsync v4 plays its tests, and what plays them here.
type Driver struct {
	Name    string // in redsync v4
	Through string // the options that reach the nodes here
	Changed string // "" if this library takes the options of the driver
}

// The ways in which a scene reaches its nodes.
const (
	ThroughOptions = "pool.New, Options.Addr"        // tests, TestV4ScenesOnRealServers
	ThroughDialer  = "pool.New, Options.Dialer"      // tests, TestV4ScenesOnRealServers
	ThroughRueidis = "pool.New, rueidispool.Options" // rueidispool, TestV4ScenesOnRealServers
)

const noDriver = "this library has no such driver: go-redis v9 "

// Drivers are the drivers of redsync v4's tests.
var Drivers = []Driver{
	{"redigo", ThroughDialer, noDriver + "dials with the function of the pool"},
	{"goredis", ThroughOptions, noDriver + "gets network and address; the run of goredis_v9"},
	{"goredis_v7", ThroughOptions, noDriver + "gets network and address; the run of goredis_v9"},
	{"goredis_v8", ThroughOptions, noDriver + "gets network and address; the run of goredis_v9"},
	{"goredis_v9", ThroughOptions, ""},
	{"rueidis", ThroughRueidis, ""},
}

// A Move is what became of one test of redsync v4 with one driver.
type Move struct {
	Test, Driver, Through string

	How string // "" if it is kept as it was
}

// Moved returns what became of each test with each driver. None is dropped.
func Moved() (moves []Move) {
	for _, s := range Scenes {
		for _, d := range Drivers {
			how := s.Changed
			if how != "" && d.Changed != "" {
				how += "; "
			}
			moves = append(moves, Move{s.Test, d.Name, d.Through, how + d.Changed})
		}
	}
	return moves
}
