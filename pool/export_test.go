package pool

// For the tests of package pool_test.
var (
	Ask    = ask
	Answer = answer
)

// ClientsMet returns how many clients MetBefore knows.
func ClientsMet() int {
	met.Lock()
	defer met.Unlock()
	return len(met.clients)
}
