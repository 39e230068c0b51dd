//go:build franz

package main

import (
	"context"
	"crypto/tls"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func init() { clients["franz"] = franz }

func franz(broker, topic string, count int, security *tls.Config, credentials *login) int {
	options := []kgo.Opt{
		kgo.SeedBrokers(broker),
		kgo.DialTLSConfig(security),
		kgo.DefaultProduceTopic(topic),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if credentials != nil {
		switch credentials.mode {
		case "scram":
			options = append(options, kgo.SASL(scram.Auth{User: credentials.user, Pass: credentials.password}.AsSha256Mechanism()))
		case "plain":
			options = append(options, kgo.SASL(plain.Auth{User: credentials.user, Pass: credentials.password}.AsMechanism()))
		case "oauthbearer":
			options = append(options, kgo.SASL(oauth.Auth{Token: credentials.password}.AsMechanism()))
		}
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for number := 0; number < count; number++ {
		client.Produce(ctx, kgo.StringRecord(value(number)), func(_ *kgo.Record, err error) { check(err) })
	}
	check(client.Flush(ctx))
	read := 0
	for read < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			if string(record.Value) == value(read) {
				read++
			}
		})
	}
	return read
}
