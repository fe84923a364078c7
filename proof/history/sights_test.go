package history_test

import (
	"testing"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// Keys stand for 10 after the last thing that a client did.
func TestCheckOfLooks(t *testing.T) {
	judge(t, history.Rules{Sights: history.Sights{Stands: 10, Since: 1}}, []row{
		{"a holder", "$whole; o saw 13-15 held v:x", ""},
		{"before Lock returns", "$whole; o saw 8-11 held v:x", ""},
		{"before Lock is called", "$whole; o saw 8-9 held v:x", "look names one that does not hold"},
		{"while Unlock runs", "$whole; o saw 21-24 held v:x", ""},
		{"when Unlock returns", "$whole; o saw 22-24 held v:x", ""},
		{"after Unlock", "$whole; o saw 23-24 held v:x", "look names one that does not hold"},
		{"after Unlock, of a minimal hold", "x 10 12-50/20 owner=x value=v keeps=15; x unlocked 22 owner=x keeps=15; o saw 35-36 held v:x", ""},
		{"after Unlock, and after the minimal hold", "x 10 12-50/20 owner=x value=v keeps=15; x unlocked 22 owner=x keeps=15; o saw 36-37 held v:x", "look names one that does not hold"},
		{"after an Unlock that has failed", "$held; x unlocked 22 err=no-quorum; o saw 60-61 held v:x", ""},
		{"long after an Unlock that has failed", "$held; x unlocked 22 err=no-quorum; o saw 61-62 held v:x", "look names one that does not hold"},
		{"long after the client has crashed", "$held; o saw 61-62 held v:x", "look names one that does not hold"},
		{"of the hold as it is extended", "$held; x extended 40-60; o saw 70-71 held v:x", ""},
		{"nobody, of a name", "$whole; o saw 13-15 held v:x w:y", "look contradicts a holder look names one that does not hold"},
		{"nobody", "o saw 13-15 held v:x", "look names one that does not hold"},
		{"of another name", "x 10 12-50/20 owner=x value=v name=b; x unlocked 22 owner=x name=b; o saw 13-15 held v:x", "look names one that does not hold"},
		{"an attempt that fails", "$failed; o saw 13-15 held w:y", ""},
		{"an attempt that has failed", "$failed; o saw 30-31 held w:y", ""},
		{"an attempt that has failed long ago", "$failed; o saw 31-32 held w:y", "look names one that does not hold"},
		{"an attempt that never ends", "y call 10 owner=y; o saw 99-100 held w:y", ""},
		{"an attempt before the one that holds", "y 10 20-90/80 owner=y value=u; o saw 18-21 held w:y silent", ""},
		{"long after, an attempt before the one", "y 10 20-90/80 owner=y value=u; y unlocked 82; o saw 83-84 held w:y", "look names one that does not hold"},
		{"when the attempt began", "$failed; o saw 13-15 held w:y@9", ""},
		{"before any attempt began", "$failed; o saw 13-15 held w:y@8", "look names one that does not hold"},
		{"after all attempts", "$failed; o saw 13-15 held w:y@22", "look names one that does not hold"},
		{"another owner", "$whole; o saw 13-15 held v:y", "look names a wrong owner"},
		{"no owner", "$whole; o saw 13-15 held v:", "look names a wrong owner"},
		{"an owner that nobody is", "$failed; o saw 13-15 held v:x", "look names one that does not hold"},
		{"the owner of who has given the lock away", "$held; x gave 13; z 13 14-50 owner=z value=v shares=x; o saw 15-16 held v:x", ""},
		{"an adopted lock", "$whole; z 13 14-50/40 owner=z value=v shares=x; o saw 30-31 held v:x", ""},
		{"a lock that could not be adopted", "$whole; z call 13 shares=x; z refused 30 shares=x; o saw 40-41 held v:x", ""},
		{"handed over to one that has given up", "$whole; z call 13 owner=x; z refused 30 owner=x; o saw 40-41 held v:x", ""},
		{"not handed over, as another one came later", "$whole; z call 23 owner=x; z refused 30 owner=x; o saw 40-41 held v:x", "look names one that does not hold"},
		{"not handed over, as another one went earlier", "z call 9 owner=x; z refused 11 owner=x; x 10 12-50/13 owner=x value=v; x unlocked 14; o saw 15-16 held v:x", "look names one that does not hold"},
		{"a client that only adopts", "$whole; z call 23 owner=x shares=y; z refused 30 owner=x shares=y; o saw 31-32 held u:x", "look names one that does not hold"},
		{"a client of a name that another one had", "$whole; x 30 32-50/40 owner=x value=u; o saw 31-33 held u:x", ""},
		{"a reader beside a writer that is named", "$whole; y call 10 owner=y reads; y refused 20 owner=y reads; o saw 13-15 held v:x w:y! silent", "look contradicts a holder"},
		{"permits, and the lock is held", "$whole; o saw 13-15 free permits=3", ""},
		{"not handed over to another process", "$whole; z call 13 owner=x process=other; z refused 30 owner=x; o saw 40-41 held v:x", "look names one that does not hold"},
		{"free", "$whole; o saw 23-24 free; o saw 8-9 free", ""},
		{"free while it is held", "$whole; o saw 13-15 free", "look contradicts a holder"},
		{"free while it is held, with silent nodes", "$whole; o saw 13-15 free silent", "look contradicts a holder"},
		{"free when the hold begins", "$whole; o saw 11-15 free", ""},
		{"free when the hold ends", "$whole; o saw 19-21 free", ""},
		{"free after the last promise", "$held; x extended 40-60; o saw 49-50 free", "look contradicts a holder"},
		{"free while it is extended", "$held; x extended 40-60; o saw 39-51 free", ""},
		{"free after an extension", "$held; x extended 40-60; o saw 41-60 free", "look contradicts a holder"},
		{"free while somebody holds that is not noted", "x 10 12-50/20; o saw 13-15 free", ""},
		{"somebody else", "$whole; $failed; o saw 13-15 held w:y silent", "look contradicts a holder"},
		{"unknown, with silence of nobody", "$whole; o saw 13-15 unknown noquorum", "look contradicts a holder"},
		{"without the holder", "x 10 12-50/20 owner=x value=v reads; x unlocked 22 owner=x reads; $failed; o saw 13-15 held w:y", "look contradicts a holder"},
		{"readers", "x 10 12-50/20 owner=x value=v reads; x unlocked 22 owner=x reads; y 10 12-50/20 owner=y value=w reads; o saw 13-15 held v:x! w:y!", ""},
		{"one of two readers, with silent nodes", "x 10 12-50/20 owner=x value=v reads; x unlocked 22 owner=x reads; y 10 12-50/20 owner=y value=w reads; o saw 13-15 held v:x! silent", ""},
		{"one of two readers", "x 10 12-50/20 owner=x value=v reads; x unlocked 22 owner=x reads; y 10 12-50/20 owner=y value=w reads; o saw 13-15 held v:x!", "look contradicts a holder"},
		{"a writer beside a reader", "x 10 12-50/20 owner=x value=v reads; x unlocked 22 owner=x reads; $failed; o saw 13-15 held v:x! w:y", "look contradicts a holder"},
		{"a writer that reads", "$whole; o saw 13-15 held v:x!", "look contradicts a holder"},
		{"a writer that has downgraded", "$held; x downgrade 13; o saw 14-15 held v:x!", ""},
		{"permits", "$held permits=3; y 10 12-50/20 owner=y value=w permits=3; o saw 13-15 held v:x w:y permits=3", ""},
		{"permits, one of them", "$held permits=3; y 10 12-50/20 owner=y value=w permits=3; o saw 13-15 held v:x permits=3", "look contradicts a holder"},
		{"permits beyond those that are known", "$held permits=3; o saw 13-15 free permits=2", ""},
		{"the lock, and permits are held", "$held permits=3; o saw 13-15 free", ""},
		{"several names, and the last of them is free", "x 10 12-50/20 owner=x value=v name=b more=a; x unlocked 22 owner=x name=b more=a; o saw 13-15 free", "look contradicts a holder"},
		{"several names, and the last of them is held", "x 10 12-50/20 owner=x value=v name=b more=a; x unlocked 22 owner=x name=b more=a; o saw 13-15 held v:x", ""},
		{"unknown", "$whole; o saw 13-15 unknown silent noquorum", ""},
		{"unknown, with the value that only one node has", "$whole; o saw 13-15 unknown w:y silent noquorum", "look contradicts a holder look names one that does not hold"},
		{"unknown, without an error", "$whole; o saw 13-15 unknown silent", "look cannot tell, without a reason"},
	})
	judge(t, history.Rules{Sights: history.Sights{Stands: 10, Since: 1, Joint: true}}, []row{
		{"somebody else, of joint sets", "$whole; $failed; o saw 13-15 held v:x w:y", "look contradicts a holder"},
		{"unknown, of joint sets", "$whole; o saw 13-15 unknown noquorum", ""},
		{"free, of joint sets", "$whole; o saw 13-15 free", "look contradicts a holder"},
	})
	judge(t, history.Rules{LostSlop: 1}, []row{
		{"not judged", "$whole; o saw 13-15 free w:y", ""},
	})
}
