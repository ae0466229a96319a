2026-11-23T02:12:11.426980Z  INFO window 0: imbalance 0.2283, lost 0.00 %, 0 hot keys, 0 replicas, threshold 0.000000
2026-11-23T02:12:12.085810Z  INFO window 1: imbalance 0.2264, lost 0.00 %, 0 hot keys, 0 replicas, threshold 0.005000
2026-11-23T02:12:12.722158Z  INFO window 2: imbalance 0.2495, lost 0.00 %, 152 hot keys, 348 replicas, threshold 0.005000
2026-11-23T02:12:13.239835Z  INFO window 3: imbalance 0.0566, lost 0.00 %, 292 hot keys, 743 replicas, threshold 0.002450
2026-11-23T02:12:13.766041Z  INFO window 4: imbalance 0.0299, lost 0.00 %, 287 hot keys, 705 replicas, threshold 0.002450
2026-11-23T02:12:14.285705Z  INFO window 5: imbalance 0.0311, lost 0.00 %, 290 hot keys, 712 replicas, threshold 0.002450
2026-11-23T02:12:14.810124Z  INFO window 6: imbalance 0.0223, lost 0.00 %, 283 hot keys, 710 replicas, threshold 0.002450
2026-11-23T02:12:15.342571Z  INFO window 7: imbalance 0.0309, lost 0.00 %, 285 hot keys, 720 replicas, threshold 0.002450
server  balanced after  imbalance at the end  asked again    lost  not its own
──────  ──────────────  ────────────────────  ───────────  ──────  ───────────
before  0.0 s                         0.0149        0.0 %   0.0 %            0
died    never                         0.0080      503.6 %  19.1 %           69
back    never                         0.1371        0.5 %   0.0 %            0
slow    never                         0.1236        3.0 %   0.0 %            2

failed_requests                  71
failed_requests_back             0
failed_requests_before           0
failed_requests_died             69
failed_requests_slow             2
must_be_zero                     {}
wrong_values                     0
written: /tmp/w/E.f.json
written: lab-out/kv-failures.svg
shortstop: experiment kv-failures: failed_requests = 71: at most 0 was claimed; rebalanced_ms_max was not measured

real	0m39.440s
user	0m7.379s
sys	0m10.863s
