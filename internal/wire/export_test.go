package wire

// For the tests of package pool_test.
var (
	Ask             = ask
	Answer          = answer
	Unused          = unused
	NoNotifications = noNotifications
)
