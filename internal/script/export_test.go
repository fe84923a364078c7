package script

// NewLock returns the Lock of key and value.
func NewLock(key, value string) Lock {
	k := NewKey(key)
	return k.Lock(value)
}

// Name returns the key.
func (l Lock) Name() string { return l.key.(string) }
