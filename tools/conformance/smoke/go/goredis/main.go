// The usual life of a go-redis client.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"smoke/steps"
)

type list = []any

// The answers of several commands, errors among them.
func all(commands []redis.Cmder, err error) (any, error) {
	told := []string{}
	for _, command := range commands {
		told = append(told, command.String())
	}
	return told, err
}

func main() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{steps.Address()}, MaxRetries: -1, IsClusterMode: os.Getenv("CLUSTER") != ""})
	steps.Step("connect", func(ctx context.Context) (any, error) { return client.Ping(ctx).Result() })
	steps.Step("set and get", func(ctx context.Context) (any, error) {
		return all(client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "a", "1", 0)
			p.Get(ctx, "a")
			p.SetNX(ctx, "a", "2", time.Minute)
			p.SetArgs(ctx, "a", "3", redis.SetArgs{Mode: "XX", Get: true, KeepTTL: true})
			p.MSet(ctx, "m", 1, "n{m}", 2)
			p.MGet(ctx, "m", "n{m}", "none{m}")
			p.IncrByFloat(ctx, "f", 1.25)
			return nil
		}))
	})
	steps.Step("a key that is not there", func(ctx context.Context) (any, error) {
		err := client.Get(ctx, "none").Err()
		return err, nil
	})
	steps.Step("a large value", func(ctx context.Context) (any, error) {
		client.Set(ctx, "large", strings.Repeat("x", 3_000_000), 0)
		told, err := client.Get(ctx, "large").Result()
		return len(told), err
	})
	steps.Step("many at once", func(ctx context.Context) (any, error) {
		return all(client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 500 {
				p.IncrBy(ctx, "n"+string(rune('0'+i%7)), int64(i))
			}
			return nil
		}))
	})
	steps.Step("transaction", func(ctx context.Context) (any, error) {
		return all(client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "t", 1, 0)
			p.IncrBy(ctx, "t", 5)
			p.Get(ctx, "t")
			return nil
		}))
	})
	steps.Step("transaction over a watched key", func(ctx context.Context) (any, error) {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			client.Set(ctx, "w", 1, 0)
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, "w", 2, 0)
				return nil
			})
			return err
		}, "w")
		return list{err, client.Get(ctx, "w").Val()}, nil
	})
	steps.Step("publish and subscribe", func(ctx context.Context) (any, error) {
		subscriber := client.Subscribe(ctx, "c")
		defer subscriber.Close()
		if _, err := subscriber.Receive(ctx); err != nil {
			return nil, err
		}
		heard := client.Publish(ctx, "c", "hello").Val()
		message, err := subscriber.ReceiveMessage(ctx)
		return list{heard, message}, err
	})
	steps.Step("script", func(ctx context.Context) (any, error) {
		script := redis.NewScript("redis.call('set', KEYS[1], ARGV[1]); return redis.call('incrby', KEYS[1], ARGV[2])")
		first, err := script.Run(ctx, client, []string{"s"}, 3, 4).Result()
		second := script.Run(ctx, client, []string{"s"}, 5, 6).Val()
		return list{first, second, client.Get(ctx, "s").Val()}, err
	})
	steps.Step("blocking pop", func(ctx context.Context) (any, error) {
		popped := make(chan []string)
		go func() { popped <- client.BLPop(ctx, 5*time.Second, "q").Val() }()
		err := client.RPush(ctx, "q", "x").Err()
		return list{<-popped, client.BLPop(ctx, time.Second, "q").Err()}, err
	})
	steps.Step("types", func(ctx context.Context) (any, error) {
		return all(client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.RPush(ctx, "l", 1, 2)
			p.LRange(ctx, "l", 0, -1)
			p.HSet(ctx, "h", "f", 1)
			p.HGetAll(ctx, "h")
			p.SAdd(ctx, "e", 1, 2)
			p.SIsMember(ctx, "e", 2)
			p.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"}, redis.Z{Score: 2, Member: "n"})
			p.ZRangeWithScores(ctx, "z", 0, -1)
			p.XAdd(ctx, &redis.XAddArgs{Stream: "x", ID: "1-1", Values: list{"f", "v"}})
			p.XRange(ctx, "x", "-", "+")
			p.PFAdd(ctx, "y", 1, 2)
			p.PFCount(ctx, "y")
			p.SetBit(ctx, "i", 7, 1)
			p.BitCount(ctx, "i", nil)
			p.Expire(ctx, "a", time.Minute)
			p.TTL(ctx, "a")
			p.Rename(ctx, "a", "a2{a}")
			p.Type(ctx, "a2{a}")
			p.Exists(ctx, "a", "a2{a}")
			p.Del(ctx, "a", "a2{a}")
			return nil
		}))
	})
	steps.Step("scan", func(ctx context.Context) (any, error) {
		found := map[string]bool{}
		keys := client.Scan(ctx, 0, "n*", 3).Iterator()
		for keys.Next(ctx) {
			found[keys.Val()] = true
		}
		return found, keys.Err()
	})
	steps.Step("errors", func(ctx context.Context) (any, error) {
		return list{client.Incr(ctx, "l").Err(), client.Do(ctx, "nosuchcommand").Err(), client.Do(ctx, "get").Err()}, nil
	})
	steps.Step("RESP2 and another database", func(ctx context.Context) (any, error) {
		other := redis.NewClient(&redis.Options{Addr: steps.Address(), Protocol: 2, DB: 3, MaxRetries: -1})
		defer other.Close()
		return list{other.Set(ctx, "a", "three", 0), other.Get(ctx, "a"), client.Get(ctx, "a")}, other.Ping(ctx).Err()
	})
	steps.Step("close", func(ctx context.Context) (any, error) { return nil, client.Close() })
}
