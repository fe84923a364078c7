package realredis

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
)

// A Child is another process that runs this program. It ends when this process does, if the system
// supports that.
type Child struct {
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
}

// StartChild starts this program again, and passes job to it as JSON in an environment variable.
// The process is killed when ctx is done.
func StartChild(ctx context.Context, variable string, job any) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = EndWithParent()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &Child{cmd, stdin, stdout}, cmd.Start()
}
