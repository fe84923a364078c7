//go:build !unix

package redsynctest

import "fmt"

func startProcesses(_ int, program string) ([]server, error) {
	return nil, fmt.Errorf("%s=%s: real servers can be used on Unix only", serversEnv, program)
}
