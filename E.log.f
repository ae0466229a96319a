2026-11-23T02:17:29.869824Z  INFO window 0: imbalance 0.2307, lost 0.00 %, 0 hot keys, 0 replicas, threshold 0.000000
2026-11-23T02:17:32.398417Z  INFO window 1: imbalance 0.2254, lost 0.10 %, 0 hot keys, 0 replicas, threshold 0.005000
2026-11-23T02:17:34.379157Z  INFO window 2: imbalance 0.2505, lost 0.00 %, 154 hot keys, 355 replicas, threshold 0.002450
2026-11-23T02:17:34.931430Z  INFO window 3: imbalance 0.0248, lost 0.00 %, 152 hot keys, 375 replicas, threshold 0.002450
2026-11-23T02:17:37.505236Z  INFO window 4: imbalance 0.0266, lost 0.25 %, 192 hot keys, 469 replicas, threshold 0.002450
2026-11-23T02:17:38.077857Z  INFO window 5: imbalance 0.0344, lost 0.00 %, 160 hot keys, 413 replicas, threshold 0.002450
2026-11-23T02:17:40.590688Z  INFO window 6: imbalance 0.0208, lost 0.42 %, 185 hot keys, 475 replicas, threshold 0.002450
2026-11-23T02:17:41.117058Z  INFO window 7: imbalance 0.0234, lost 0.00 %, 174 hot keys, 441 replicas, threshold 0.002450
server  balanced after  imbalance at the end  asked again    lost  not its own
──────  ──────────────  ────────────────────  ───────────  ──────  ───────────
before  6.4 s                         0.0218        0.3 %   0.0 %            0
died    1.0 s                         0.0155       83.7 %  20.9 %            0
back    2.0 s                         0.0337        0.7 %   0.0 %            0
slow    never                         0.0156        1.8 %   0.0 %            3

failed_requests                  3
failed_requests_back             0
failed_requests_before           0
failed_requests_died             0
failed_requests_slow             3
must_be_zero                     {}
rebalanced_ms_back               2018.54
rebalanced_ms_died               1027.118
wrong_values                     0
written: /tmp/w/E.f.json
written: lab-out/kv-failures.svg
shortstop: experiment kv-failures: failed_requests = 3: at most 0 was claimed; rebalanced_ms_max was not measured

real	0m49.729s
user	0m7.574s
sys	0m9.995s
