// The usual life of a rueidis client, whose cache the server must keep true.
package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"smoke/steps"
)

type list = []any

// The answers of several commands, errors among them.
func all(results []rueidis.RedisResult) (any, error) {
	told := list{}
	for _, result := range results {
		answer, err := result.ToAny()
		told = append(told, answer, err)
	}
	return told, results[0].NonRedisError()
}

func main() {
	options := rueidis.ClientOption{InitAddress: []string{steps.Address()}, DisableRetry: true}
	var client rueidis.Client
	var build rueidis.Builder
	connected := false
	steps.Step("connect", func(ctx context.Context) (any, error) {
		made, err := rueidis.NewClient(options)
		if err != nil {
			return nil, err
		}
		client, build, connected = made, made.B(), true
		return client.Do(ctx, build.Ping().Build()).ToAny()
	})
	if !connected {
		return
	}
	steps.Step("set and get", func(ctx context.Context) (any, error) {
		return all(client.DoMulti(ctx, build.Set().Key("a").Value("1").Build(), build.Get().Key("a").Build(), build.Get().Key("none").Build(),
			build.Set().Key("a").Value("2").Nx().ExSeconds(60).Build(), build.Set().Key("a").Value("3").Xx().Get().Keepttl().Build(),
			build.Mset().KeyValue().KeyValue("m", "1").KeyValue("n{m}", "2").Build(), build.Mget().Key("m", "n{m}", "none{m}").Build()))
	})
	steps.Step("many at once", func(ctx context.Context) (any, error) {
		commands := rueidis.Commands{}
		for range 500 {
			commands = append(commands, build.Incr().Key("n").Build())
		}
		return all(client.DoMulti(ctx, commands...))
	})
	cached := func(ctx context.Context, key string) (list, error) {
		result := client.DoCache(ctx, build.Get().Key(key).Cache(), time.Minute)
		answer, err := result.ToString()
		return list{answer, result.IsCacheHit()}, err
	}
	steps.Step("client cache", func(ctx context.Context) (any, error) {
		first, err := cached(ctx, "a")
		if err != nil {
			return nil, err
		}
		second, err := cached(ctx, "a")
		return list{first, second}, err
	})
	for _, way := range []struct {
		name  string
		write func() rueidis.Completed
		want  string
	}{
		{"SET", func() rueidis.Completed { return build.Set().Key("k").Value("5").Build() }, "5"},
		{"APPEND", func() rueidis.Completed { return build.Append().Key("k").Value("6").Build() }, "56"},
		{"a script", func() rueidis.Completed {
			return build.Eval().Script("return redis.call('set', KEYS[1], '7')").Numkeys(1).Key("k").Build()
		}, "7"},
		{"FLUSHALL", func() rueidis.Completed { return build.Flushall().Build() }, ""},
	} {
		steps.Step("client cache after "+way.name+" of another client", func(ctx context.Context) (any, error) {
			other, err := rueidis.NewClient(options)
			if err != nil {
				return nil, err
			}
			defer other.Close()
			if _, err := cached(ctx, "k"); err != nil && !rueidis.IsRedisNil(err) {
				return nil, err
			}
			if err := other.Do(ctx, way.write()).Error(); err != nil {
				return nil, err
			}
			// Until the invalidation has come, or the step's time is over.
			for ctx.Err() == nil {
				told, err := cached(ctx, "k")
				if err != nil && !rueidis.IsRedisNil(err) {
					return nil, err
				}
				if told[0] == way.want {
					return told[0], nil
				}
				client.Do(ctx, build.Ping().Build())
			}
			return nil, ctx.Err()
		})
	}
	steps.Step("transaction", func(ctx context.Context) (any, error) {
		var told any
		err := client.Dedicated(func(one rueidis.DedicatedClient) error {
			var err error
			told, err = all(one.DoMulti(ctx, build.Watch().Key("t").Build(), build.Multi().Build(), build.Set().Key("t").Value("1").Build(),
				build.Incrby().Key("t").Increment(5).Build(), build.Get().Key("t").Build(), build.Exec().Build()))
			return err
		})
		return told, err
	})
	steps.Step("publish and subscribe", func(ctx context.Context) (any, error) {
		heard := make(chan rueidis.PubSubMessage, 1)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go client.Receive(ctx, build.Subscribe().Channel("c").Build(), func(message rueidis.PubSubMessage) { heard <- message })
		for {
			count, err := client.Do(ctx, build.Publish().Channel("c").Message("hello").Build()).AsInt64()
			if err != nil {
				return nil, err
			}
			if count == 1 {
				return <-heard, nil
			}
		}
	})
	steps.Step("script", func(ctx context.Context) (any, error) {
		script := rueidis.NewLuaScript("redis.call('set', KEYS[1], ARGV[1]); return redis.call('incrby', KEYS[1], ARGV[2])")
		return all([]rueidis.RedisResult{script.Exec(ctx, client, []string{"s"}, []string{"3", "4"}), script.Exec(ctx, client, []string{"s"}, []string{"5", "6"})})
	})
	steps.Step("blocking pop", func(ctx context.Context) (any, error) {
		popped := make(chan rueidis.RedisResult)
		go func() { popped <- client.Do(ctx, build.Blpop().Key("q").Timeout(5).Build()) }()
		pushed := client.Do(ctx, build.Rpush().Key("q").Element("x").Build())
		return all([]rueidis.RedisResult{pushed, <-popped, client.Do(ctx, build.Blpop().Key("q").Timeout(0.1).Build())})
	})
	steps.Step("types", func(ctx context.Context) (any, error) {
		return all(client.DoMulti(ctx, build.Rpush().Key("l").Element("1", "2").Build(), build.Lrange().Key("l").Start(0).Stop(-1).Build(),
			build.Hset().Key("h{l}").FieldValue().FieldValue("f", "1").Build(), build.Hgetall().Key("h{l}").Build(), build.Sadd().Key("e").Member("1").Build(),
			build.Smembers().Key("e").Build(), build.Zadd().Key("z").ScoreMember().ScoreMember(1.5, "m").Build(),
			build.Zrange().Key("z").Min("0").Max("-1").Withscores().Build(), build.Xadd().Key("x").Id("1-1").FieldValue().FieldValue("f", "v").Build(),
			build.Xrange().Key("x").Start("-").End("+").Build(), build.Expire().Key("l").Seconds(60).Build(), build.Ttl().Key("l").Build(),
			build.Type().Key("l").Build(), build.Del().Key("l", "h{l}").Build(), build.Incr().Key("e").Build(), build.Arbitrary("nosuchcommand").Keys("e").Build()))
	})
	steps.Step("RESP2 and another database", func(ctx context.Context) (any, error) {
		options.AlwaysRESP2, options.DisableCache, options.SelectDB = true, true, 3
		other, err := rueidis.NewClient(options)
		if err != nil {
			return nil, err
		}
		defer other.Close()
		return all(other.DoMulti(ctx, build.Set().Key("a").Value("three").Build(), build.Get().Key("a").Build(), build.Hgetall().Key("none").Build()))
	})
	steps.Step("close", func(ctx context.Context) (any, error) { client.Close(); return nil, nil })
}
