package redsyncgocron

import "time"

// Again is the pause between two campaigns.
const Again = again

// Until returns when the current term ends unless it is extended.
func (e *Elector) Until() time.Time { return e.term.Load().Until() }
