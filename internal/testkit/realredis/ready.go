package realredis

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// AwaitLog waits until a server's log has the text ready behind its first before bytes. cmd is the server, and exit is
// closed when it has ended: then AwaitLog returns what the log says. A successful connection would prove nothing: another
// process may have taken the port first.
func AwaitLog(cmd *exec.Cmd, exit <-chan struct{}, log string, before int64, ready string, timeout time.Duration) error {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		ended := false
		select {
		case <-exit:
			ended = true // the log is complete
		case <-pause.C:
		}
		text, err := os.ReadFile(log) //nolint:gosec // the server's, which a test has started
		if err != nil {
			return err
		}
		said := text[before:]
		switch {
		case ended:
			return fmt.Errorf("%v ended: %s", cmd.Args, said)
		case bytes.Contains(said, []byte(ready)):
			return nil
		}
	}
	return fmt.Errorf("%v is not ready after %v", cmd.Args, timeout)
}
