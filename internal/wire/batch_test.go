package wire

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A client of a type that the user wrote stands for its node, if it can be compared. The pool never knows which server
// answers.
func TestPoolOfAClientOfYourOwnLeadsWhereTheClientLeads(t *testing.T) {
	type own struct{ redis.UniversalClient }
	client := unused(t, &redis.Options{})
	for range 2 {
		p := New(own{client}, Config{}).(*batchPool)
		require.Equal(t, own{client}, p.Destination())
		require.True(t, p.MetBefore())
	}

	type uncomparable struct {
		redis.UniversalClient
		_ []int
	}
	p := New(uncomparable{UniversalClient: client}, Config{}).(*batchPool)
	require.Same(t, &p.clientPool, p.Destination())
}

func TestPipelinedNeverRetries(t *testing.T) {
	req := Request{Args: []any{"SET", "a", 1}}
	cmd := &pipelined{Cmd: redis.NewCmd(t.Context(), req.Args...), req: req}
	for _, c := range []redis.Cmder{cmd, cmd.Clone()} {
		require.True(t, c.NoRetry())
		require.Equal(t, req.Args, c.Args())
		require.Equal(t, "set", c.Name())
		require.Equal(t, req, c.(*pipelined).req)
	}
}

func TestReplyOfABatchFateByError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Fate
	}{
		{redis.Nil, Answered},
		{refusal("ERR no"), Answered},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, Unknown}, // an earlier try may have sent the request
		{net.ErrClosed, Unknown},
		{context.DeadlineExceeded, Unknown},
		{redis.ErrClosed, Unknown},
	} {
		cmd := redis.NewCmd(t.Context(), "ping")
		cmd.SetErr(c.err)
		r := replyOf(cmd, nil)
		require.Equal(t, c.want, r.Fate, "%v", c.err)
		require.Zero(t, r.Conn)
		if c.want != Answered {
			require.ErrorIs(t, r.Err, c.err)
		}
	}
}

// go-redis leaves a command with neither a value nor an error when the greeting of its connection
// fails. That must not look like a null from the node, so the Fate is Unknown.
func TestReplyOfABatchThatNobodyAnswered(t *testing.T) {
	cmd := redis.NewCmd(t.Context(), "set", "key", "value", "nx")
	wrong := refusal("WRONGPASS invalid username-password pair")
	r := replyOf(cmd, wrong)
	require.Equal(t, Unknown, r.Fate)
	require.ErrorIs(t, r.Err, wrong)
	r = replyOf(cmd, nil)
	require.Equal(t, Unknown, r.Fate)
	require.Error(t, r.Err)
	cmd.SetVal("OK")
	require.Equal(t, Reply{Value: "OK", Fate: Answered}, replyOf(cmd, wrong), "this command has its value; the error belongs to another command")
}
