package wire

// For the tests of package wire_test.
var (
	Ask             = ask
	Answer          = answer
	Unused          = unused
	NoNotifications = noNotifications
)
