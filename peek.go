package redsync

import "github.com/seed14bd9ef4/redsync/internal/peek"

func init() {
	peek.Value = func(mutex any) string { return mutex.(*Mutex).current().Value() }
	peek.KnowsToken = func(r any, name string, token uint64) {
		r.(*Redsync).core.member.Group.Tokens.Raise([]string{name}, token)
	}
	peek.WaitOutSplits = func(r any) { r.(*Redsync).core.keeper.Set.WaitOutSplits() }
	peek.Exclusions = func() (pairs [][2]string) {
		for _, x := range exclusions {
			pairs = append(pairs, [2]string{x.one.String(), x.other.String()})
		}
		return pairs
	}
	peek.Alarms = func(r any) (set, now int) { return r.(*Redsync).core.keeper.CountAlarms() }
}
