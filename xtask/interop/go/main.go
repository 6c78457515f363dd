// Command interop takes the official Go client through one round trip; see the
// README one folder up.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	senders      = 16
	receivers    = 4
	batch        = 16
	awaitFor     = 3 * time.Second
	failuresMax  = 5
	shutdownFor  = 10 * time.Second
	clientModule = "github.com/apache/rocketmq-clients/golang/v5"
	// The client sends at most 2 MiB in one call.
	bodyCap = 2*1024*1024 - 4096
)

type options struct {
	endpoint, topic, group string
	messages, bodyMax      int
	invisible, limit       time.Duration
	tls                    bool
}

func parseOptions() options {
	var o options
	flag.StringVar(&o.endpoint, "endpoint", "", "HOST:PORT of the broker")
	flag.StringVar(&o.topic, "topic", "", "a topic of this run's own")
	flag.StringVar(&o.group, "group", "", "a group of this run's own")
	flag.IntVar(&o.messages, "messages", 0, "how many messages to send")
	flag.IntVar(&o.bodyMax, "max-body", 0, "bytes of the largest body")
	invisible := flag.Int("invisible-seconds", 0, "how long a received message stays hidden")
	limit := flag.Int("limit-seconds", 180, "the program ends after this time whatever happens")
	flag.BoolVar(&o.tls, "tls", false, "connect with TLS")
	flag.Parse()
	o.invisible = time.Duration(*invisible) * time.Second
	o.limit = time.Duration(*limit) * time.Second
	o.bodyMax = min(o.bodyMax, bodyCap)
	if o.endpoint == "" || o.topic == "" || o.group == "" || o.messages <= 0 || o.bodyMax <= 0 || *invisible <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	return o
}

type trip struct {
	options
	ledger    *ledger
	startedAt time.Time
	stopped   atomic.Bool
	// Deliveries that are over, by message.
	stale sync.Map
}

func (t *trip) say(format string, arguments ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(t.startedAt).Seconds(), fmt.Sprintf(format, arguments...))
}

func (t *trip) config() *rmq.Config {
	return &rmq.Config{
		Endpoint:      t.endpoint,
		ConsumerGroup: t.group,
		Credentials:   &credentials.SessionCredentials{},
	}
}

func (t *trip) sendAll() error {
	// Without its topics the producer's start never ends.
	producer, err := rmq.NewProducer(t.config(), rmq.WithTopics(t.topic))
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	if err := producer.Start(); err != nil {
		return fmt.Errorf("start of the producer: %w", err)
	}
	var next, failures atomic.Int64
	var running sync.WaitGroup
	for range senders {
		running.Add(1)
		go func() {
			defer running.Done()
			for failures.Load() < failuresMax && !t.stopped.Load() {
				index := int(next.Add(1)) - 1
				if index >= t.messages {
					return
				}
				if err := t.send(producer, index); err != nil {
					failures.Add(1)
					t.ledger.problem("send of message %d failed: %v", index, err)
				}
			}
		}()
	}
	running.Wait()
	t.say("sent %d of %d", t.ledger.sent, t.messages)
	if err := producer.GracefulStop(); err != nil {
		return fmt.Errorf("shutdown of the producer: %w", err)
	}
	if failures.Load() > 0 {
		return fmt.Errorf("%d sends failed", failures.Load())
	}
	return nil
}

func (t *trip) send(producer rmq.Producer, index int) error {
	wanted := contentOf(index, t.messages, t.bodyMax)
	message := &rmq.Message{Topic: t.topic, Body: wanted.body}
	message.SetTag(wanted.tag)
	message.SetKeys(wanted.keys...)
	for name, value := range wanted.properties {
		message.AddProperty(name, value)
	}
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		return err
	}
	if len(receipts) != 1 {
		return fmt.Errorf("%d receipts for one message", len(receipts))
	}
	t.ledger.onSent(index, receipts[0].MessageID)
	return nil
}

func (t *trip) receiveAll() error {
	consumer, err := rmq.NewSimpleConsumer(t.config(),
		rmq.WithSimpleAwaitDuration(awaitFor),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{t.topic: rmq.SUB_ALL}))
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	if err := consumer.Start(); err != nil {
		return fmt.Errorf("start of the consumer: %w", err)
	}
	var running sync.WaitGroup
	for range receivers {
		running.Add(1)
		go func() {
			defer running.Done()
			t.receive(consumer)
		}()
	}
	go t.tell()
	running.Wait()
	t.say("receivers ended")
	if err := consumer.GracefulStop(); err != nil {
		return fmt.Errorf("shutdown of the consumer: %w", err)
	}
	return nil
}

func (t *trip) tell() {
	for first := 0; first < t.messages; first, _, _ = t.ledger.progress() {
		time.Sleep(50 * time.Millisecond)
	}
	t.say("received all %d", t.messages)
	second, settled := 0, 0
	for settled < t.messages {
		time.Sleep(50 * time.Millisecond)
		_, second, settled = t.ledger.progress()
	}
	t.say("received %d again, all acked; now it must be quiet", second)
}

func (t *trip) receive(consumer rmq.SimpleConsumer) {
	failures := 0
	for !t.stopped.Load() && !t.ledger.finished() {
		askedAt := time.Now()
		messages, err := consumer.Receive(context.Background(), batch, t.invisible)
		arrivedAt := time.Now()
		// The client has no other way to say that there was nothing.
		if err != nil && !hasCode(err, v2.Code_MESSAGE_NOT_FOUND) {
			t.ledger.problem("receive failed: %v", err)
			if failures++; failures >= failuresMax {
				return
			}
			time.Sleep(500 * time.Millisecond)
			continue
		}
		for _, message := range messages {
			t.handle(consumer, message, askedAt, arrivedAt)
		}
	}
}

func (t *trip) handle(consumer rmq.SimpleConsumer, message *rmq.MessageView, askedAt, arrivedAt time.Time) {
	index, ours := t.verify(message)
	if !ours {
		return
	}
	what := t.ledger.onDelivery(index, message.GetMessageId(), message.GetDeliveryAttempt(), askedAt, arrivedAt)
	var err error
	switch what {
	case actionAck:
		err = t.ack(consumer, message, index)
	case actionShorten, actionLengthen, actionKeep, actionOldHandle:
		err = t.change(consumer, message, index, what)
	}
	if err != nil {
		t.ledger.problem("%s of message %d failed: %v", what, index, err)
	}
}

// ack can't see a refusal, because the client hides the broker's status; a
// message whose ack was refused shows when it comes back.
func (t *trip) ack(consumer rmq.SimpleConsumer, message *rmq.MessageView, index int) error {
	t.refuseStale(consumer, index)
	if err := consumer.Ack(context.Background(), message); err != nil {
		return err
	}
	t.ledger.onAcked(index)
	return nil
}

func (t *trip) change(consumer rmq.SimpleConsumer, message *rmq.MessageView, index int, what action) error {
	by := shortFor
	if what == actionLengthen || what == actionKeep {
		by = t.invisible + extraFor
	}
	old := *message
	askedAt := time.Now()
	if err := consumer.ChangeInvisibleDuration(message, by); err != nil {
		return err
	}
	t.ledger.onChanged(index, by, askedAt, time.Now())
	switch what {
	case actionKeep:
		return t.ack(consumer, message, index)
	case actionOldHandle:
		t.stale.Store(index, &old)
	}
	return nil
}

// refuseStale uses the handle of a delivery that is over: it must not touch the
// delivery that is out now. It changes, because the client hides a refused ack.
func (t *trip) refuseStale(consumer rmq.SimpleConsumer, index int) {
	old, there := t.stale.LoadAndDelete(index)
	if !there {
		return
	}
	err := consumer.ChangeInvisibleDuration(old.(*rmq.MessageView), shortFor)
	if err == nil {
		t.ledger.problem("change of message %d with the receipt handle of its first delivery was accepted", index)
	} else if !hasCode(err, v2.Code_INVALID_RECEIPT_HANDLE) {
		t.ledger.problem("change of message %d with the receipt handle of its first delivery: %v", index, err)
	}
}

func hasCode(err error, code v2.Code) bool {
	status, is := rmq.AsErrRpcStatus(err)
	return is && status.GetCode() == int32(code)
}

// verify returns the message's number if it is one of ours; whatever differs
// becomes a problem.
func (t *trip) verify(message *rmq.MessageView) (int, bool) {
	text := message.GetProperties()["index"]
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || index >= t.messages {
		t.ledger.problem("a message that was not sent: id %s, index %q", message.GetMessageId(), text)
		return 0, false
	}
	wanted := contentOf(index, t.messages, t.bodyMax)
	if message.GetTopic() != t.topic {
		t.ledger.problem("message %d: topic %q", index, message.GetTopic())
	}
	if body := message.GetBody(); !bytes.Equal(body, wanted.body) {
		t.ledger.problem("message %d: body of %d bytes differs, sent were %d", index, len(body), len(wanted.body))
	}
	if tag := message.GetTag(); tag == nil {
		t.ledger.problem("message %d: no tag, sent was %q", index, wanted.tag)
	} else if *tag != wanted.tag {
		t.ledger.problem("message %d: tag %q, sent was %q", index, *tag, wanted.tag)
	}
	if keys := slices.Sorted(slices.Values(message.GetKeys())); !slices.Equal(keys, wanted.keys) {
		t.ledger.problem("message %d: keys %q", index, keys)
	}
	if !maps.Equal(message.GetProperties(), wanted.properties) {
		t.ledger.problem("message %d: properties %q", index, message.GetProperties())
	}
	return index, true
}

// report prints the closing line and ends the process. Whoever comes first
// keeps the lock, so that the line is printed once.
func (t *trip) report() {
	l := t.ledger
	l.lock.Lock()
	l.missing()
	ok := len(l.problems) == 0
	line, err := json.Marshal(map[string]any{
		"language":        "go",
		"client":          "rocketmq-clients/golang/v5 " + clientVersion(),
		"sent":            l.sent,
		"received_first":  l.receivedFirst,
		"acked_first":     l.ackedFirst,
		"received_second": l.receivedSecond,
		"changed":         l.changed,
		"not_applicable":  []string{},
		"ok":              ok,
		"problems":        l.problems,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
	if ok {
		os.Exit(0)
	}
	os.Exit(1)
}

func clientVersion() string {
	if info, there := debug.ReadBuildInfo(); there {
		for _, module := range info.Deps {
			if module.Path == clientModule {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}

// watch ends a run that hangs: the client's start waits for settings without a limit.
func (t *trip) watch() {
	time.Sleep(max(time.Second, t.limit-shutdownFor))
	t.stopped.Store(true)
	time.Sleep(min(t.limit, shutdownFor))
	t.ledger.problem("not done within %v", t.limit)
	t.report()
}

func main() {
	o := parseOptions()
	// Without TLS only where nothing is created yet.
	rmq.EnableSsl = o.tls
	t := &trip{options: o, ledger: newLedger(o.messages, o.invisible), startedAt: time.Now()}
	go t.watch()
	err := t.sendAll()
	if err == nil {
		err = t.receiveAll()
	}
	if err != nil {
		t.ledger.problem("failed: %v", err)
	}
	t.report()
}
