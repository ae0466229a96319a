//! Whether a Redis is a master, as it says itself (`ROLE`).

use redis::{RedisResult, Value, aio::MultiplexedConnection};

use super::answers::{Class, class_of};

/// What a Redis is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    /// The host and the port of its master.
    Replica(String, u16),
    /// It knows where Redis servers are, and has no data.
    Sentinel,
    /// It does not say: its users may not ask, or it is busy.
    Unsaid,
}

/// Asks.
///
/// # Errors
/// The connection is of no use any more.
pub(super) async fn role_of(connection: &mut MultiplexedConnection) -> RedisResult<Role> {
    let answer: RedisResult<Value> = redis::cmd("ROLE").query_async(connection).await;
    match (class_of(&answer), answer) {
        (_, Ok(value)) => Ok(role_in(value)),
        (Class::Refused | Class::Demoted, Err(_)) => Ok(Role::Unsaid),
        // A proxy's own words.
        (Class::InDoubt, Err(error)) if error.code().is_some() => Ok(Role::Unsaid),
        (_, Err(error)) => Err(error),
    }
}

/// The role that an answer to ROLE names.
fn role_in(value: Value) -> Role {
    let Value::Array(parts) = value else { return Role::Unsaid };
    match &parts[..] {
        [Value::BulkString(role), ..] if role == b"master" => Role::Master,
        [Value::BulkString(role), ..] if role == b"sentinel" => Role::Sentinel,
        [Value::BulkString(role), Value::BulkString(host), Value::Int(port), ..]
            if role == b"slave" =>
        {
            let host = String::from_utf8_lossy(host).into_owned();
            Role::Replica(host, u16::try_from(*port).unwrap_or_default())
        }
        _ => Role::Unsaid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_what_redis_says() {
        let replica = Role::Replica("10.0.0.1".into(), 6379);
        let rows: [(&[u8], Role); 5] = [
            (b"*3\r\n$6\r\nmaster\r\n:9\r\n*0\r\n", Role::Master),
            (b"*5\r\n$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:6379\r\n$7\r\nconnect\r\n:-1\r\n", replica),
            (b"*2\r\n$8\r\nsentinel\r\n*0\r\n", Role::Sentinel),
            (b"*1\r\n$5\r\nslave\r\n", Role::Unsaid),
            (b"+OK\r\n", Role::Unsaid),
        ];
        for (answer, role) in rows {
            assert_eq!(role_in(redis::parse_redis_value(answer).unwrap()), role);
        }
    }
}
