package yourtests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	"github.com/seed14bd9ef4/redsync"
)

//go:generate go run go.uber.org/mock/mockgen@v0.6.0 -source gomock_test.go -destination locker_test.go -package yourtests

// A Locker is what bill needs of a Mutex.
type Locker interface {
	LockContext(ctx context.Context) error
	Unlock() (bool, error)
}

// A Mutex has the whole method set of a Mutex of redsync v4.
var _ interface {
	Locker
	Name() string
	Value() string
	Until() time.Time
	TryLock() error
	TryLockContext(ctx context.Context) error
	Lock() error
	UnlockContext(ctx context.Context) (bool, error)
	Extend() (bool, error)
	ExtendContext(ctx context.Context) (bool, error)
	Valid() (bool, error)
	ValidContext(ctx context.Context) (bool, error)
} = (*redsync.Mutex)(nil)

// bill is code under test.
func bill(ctx context.Context, lock Locker) error {
	if err := lock.LockContext(ctx); err != nil {
		return err
	}
	_, err := lock.Unlock()
	return err
}

func TestGomock(t *testing.T) {
	lock := NewMockLocker(gomock.NewController(t))
	gomock.InOrder(
		lock.EXPECT().LockContext(gomock.Any()).Return(nil),
		lock.EXPECT().Unlock().Return(false, redsync.ErrLockAlreadyExpired),
	)
	require.ErrorIs(t, bill(t.Context(), lock), redsync.ErrLockAlreadyExpired)
}
