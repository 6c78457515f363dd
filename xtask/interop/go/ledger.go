package main

import (
	"fmt"
	"sync"
	"time"
)

const (
	// The two sides round their clocks apart.
	earlyMax = 100 * time.Millisecond
	lateMax  = 6 * time.Second
	// On top of the invisible duration, after the last ack.
	quietFor    = 2 * time.Second
	shortFor    = 2 * time.Second
	extraFor    = 5 * time.Second
	problemsMax = 20
)

// action is what a receiver does with a delivery.
type action string

const (
	actionAck       action = "ack"
	actionExpire    action = "expire"
	actionShorten   action = "shorten"
	actionLengthen  action = "lengthen"
	actionKeep      action = "keep"
	actionOldHandle action = "old handle"
	actionNothing   action = "nothing"
)

// entry is one message: what was sent and what happened to it so far.
type entry struct {
	id         string
	deliveries int32
	settled    bool
	earliest   time.Time
	changedDue time.Time
}

// ledger is what may come back, when and how often: the promises that a round
// trip checks. It knows nothing of the client.
type ledger struct {
	lock           sync.Mutex
	count          int
	invisible      time.Duration
	entries        []entry
	plans          map[int]action
	secondExpected int
	sent           int
	receivedFirst  int
	ackedFirst     int
	receivedSecond int
	changed        int
	settled        int
	firstDoneAt    time.Time
	lastSettledAt  time.Time
	ids            map[string]int
	problems       []string
	dropped        int
}

func newLedger(count int, invisible time.Duration) *ledger {
	l := &ledger{
		count:          count,
		invisible:      invisible,
		entries:        make([]entry, count),
		plans:          map[int]action{},
		secondExpected: count / 2,
		ids:            map[string]int{},
		problems:       []string{},
	}
	lastOdd := count - 1 - count%2
	for back, plan := range []action{actionShorten, actionLengthen, actionKeep, actionOldHandle} {
		index := lastOdd - 2*back
		if index <= 0 {
			break
		}
		l.plans[index] = plan
		if plan == actionKeep {
			l.secondExpected--
		}
	}
	return l
}

func (l *ledger) problem(format string, arguments ...any) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.note(format, arguments...)
}

// note is problem for those who hold the lock.
func (l *ledger) note(format string, arguments ...any) {
	if len(l.problems) >= problemsMax {
		l.dropped++
		return
	}
	text := fmt.Sprintf(format, arguments...)
	fmt.Printf("problem: %s\n", text)
	l.problems = append(l.problems, text)
}

func (l *ledger) onSent(index int, id string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.sent++
	if other, there := l.ids[id]; there {
		l.note("messages %d and %d share the id %s", other, index, id)
	}
	l.ids[id] = index
	l.entries[index].id = id
}

// onDelivery checks one delivery and says what to do with the message.
func (l *ledger) onDelivery(index int, id string, attempt int32, askedAt, arrivedAt time.Time) action {
	l.lock.Lock()
	defer l.lock.Unlock()
	e := &l.entries[index]
	e.deliveries++
	if e.id != id {
		l.note("message %d came with id %s, sent was %s", index, id, e.id)
	}
	if attempt != e.deliveries {
		l.note("message %d: delivery attempt %d on delivery %d", index, attempt, e.deliveries)
	}
	if e.settled {
		l.note("message %d came back after its ack", index)
		return actionNothing
	}
	if e.deliveries == 1 {
		return l.first(index, e, askedAt)
	}
	if e.deliveries > 2 {
		l.note("message %d came %d times", index, e.deliveries)
	}
	return l.second(index, e, arrivedAt)
}

func (l *ledger) first(index int, e *entry, askedAt time.Time) action {
	l.receivedFirst++
	e.earliest = askedAt.Add(l.invisible)
	if l.receivedFirst == l.count {
		l.firstDoneAt = time.Now()
	}
	if index%2 == 0 {
		return actionAck
	}
	if plan, there := l.plans[index]; there {
		return plan
	}
	return actionExpire
}

func (l *ledger) second(index int, e *entry, arrivedAt time.Time) action {
	l.receivedSecond++
	if early := e.earliest.Sub(arrivedAt); early > earlyMax {
		l.note("message %d came back %v too early", index, early)
	}
	if !e.changedDue.IsZero() && !l.firstDoneAt.IsZero() {
		due := e.changedDue
		if l.firstDoneAt.After(due) {
			due = l.firstDoneAt
		}
		if late := arrivedAt.Sub(due); late > lateMax {
			l.note("message %d came back %v after its changed time", index, late)
		}
	}
	return actionAck
}

func (l *ledger) onChanged(index int, by time.Duration, askedAt, answeredAt time.Time) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.entries[index].earliest = askedAt.Add(by)
	l.entries[index].changedDue = answeredAt.Add(by)
	l.changed++
}

func (l *ledger) onAcked(index int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	e := &l.entries[index]
	if e.deliveries == 1 && index%2 == 0 {
		l.ackedFirst++
	}
	e.settled = true
	l.settled++
	l.lastSettledAt = time.Now()
}

// finished is true once all is acked and each acked message has had the time
// to come back wrongly.
func (l *ledger) finished() bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.settled >= l.count && time.Since(l.lastSettledAt) > l.invisible+quietFor
}

// progress is how many came once, came again, and are settled.
func (l *ledger) progress() (first, second, settled int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.receivedFirst, l.receivedSecond, l.settled
}

// missing names what never came, at the end of a run. The caller holds the lock.
func (l *ledger) missing() {
	l.missingRound(1, l.receivedFirst, l.count)
	l.missingRound(2, l.receivedSecond, l.secondExpected)
	if l.dropped > 0 {
		l.problems = append(l.problems, fmt.Sprintf("and %d more problems", l.dropped))
	}
}

func (l *ledger) missingRound(times int32, got, expected int) {
	if got == expected {
		return
	}
	absent := []int{}
	for index, e := range l.entries {
		if e.deliveries < times && !e.settled && len(absent) < 5 {
			absent = append(absent, index)
		}
	}
	l.note("delivery %d: %d of %d messages came, missing e.g. %v", times, got, expected, absent)
}
