package script

// NewLock returns the Lock of key and value.
func NewLock(key, value string) Lock {
	k := NewKey(key)
	return k.Lock(value)
}

// Name returns the key.
func (l Lock) Name() string { return l.key.(string) }

// KeepsQueue reports whether k keeps the key of its queue.
func (k *Key) KeepsQueue() bool {
	kept := k.queue.key.Load()
	return kept != nil && kept != &named
}
