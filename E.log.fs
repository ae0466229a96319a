2026-11-23T02:17:24.967356Z  INFO interfaces changed switch=1
2026-11-23T02:17:24.969477Z  INFO set up: 1 tenants, 32 stores
2026-11-23T02:17:24.969598Z  INFO page table 1.1: 1 pages changed hands, 0 items were on them
2026-11-23T02:17:25.716733Z  INFO page table 1.2: 1 pages changed hands, 0 items were on them
2026-11-23T02:17:25.772138Z  INFO window 0: imbalance 0.2585, lost 0.00 %, 57 hot keys, 205 replicas, threshold 0.032000
2026-11-23T02:17:25.980031Z  INFO page table 1.3: 4 pages changed hands, 0 items were on them
2026-11-23T02:17:27.661018Z  INFO window 1: imbalance 0.0285, lost 0.00 %, 285 hot keys, 2036 replicas, threshold 0.015680
2026-11-23T02:17:27.861443Z  INFO page table 1.4: 2 pages changed hands, 0 items were on them
2026-11-23T02:17:28.311764Z  INFO window 2: imbalance 0.0348, lost 0.00 %, 89 hot keys, 334 replicas, threshold 0.015680
2026-11-23T02:17:28.346198Z  INFO page table 1.5: 1 pages changed hands, 0 items were on them
2026-11-23T02:17:28.746835Z  INFO window 3: imbalance 0.0280, lost 0.00 %, 114 hot keys, 442 replicas, threshold 0.015680
2026-11-23T02:17:29.836884Z  INFO window 4: imbalance 0.0225, lost 0.00 %, 116 hot keys, 444 replicas, threshold 0.015680
2026-11-23T02:17:30.237057Z  INFO window 5: imbalance 0.0228, lost 0.00 %, 125 hot keys, 456 replicas, threshold 0.015680
2026-11-23T02:17:30.652338Z  INFO window 6: imbalance 0.0218, lost 0.00 %, 129 hot keys, 464 replicas, threshold 0.015680
2026-11-23T02:17:31.449098Z  INFO window 7: imbalance 0.0224, lost 0.00 %, 130 hot keys, 468 replicas, threshold 0.015680
2026-11-23T02:17:32.285190Z  INFO page table 1.6: 1 pages changed hands, 0 items were on them
2026-11-23T02:17:34.256610Z  INFO page table 1.7: 1 pages changed hands, 0 items were on them
server  balanced after  imbalance at the end  asked again   lost  not its own
──────  ──────────────  ────────────────────  ───────────  ─────  ───────────
before           0.0 s                0.0166        0.0 %  0.0 %            0
died             0.0 s                0.0201       14.6 %  3.6 %            0
back             3.0 s                0.0148        0.0 %  0.0 %            0
slow             0.0 s                0.0131        0.0 %  0.0 %            0

failed_requests                  0
failed_requests_back             0
failed_requests_before           0
failed_requests_died             0
failed_requests_slow             0
must_be_zero                     {}
rebalanced_ms_back               3000.0
rebalanced_ms_died               0.0
rebalanced_ms_max                3000.0
rebalanced_ms_slow               0.0
wrong_values                     0
written: /tmp/w/E.fs.json
written: lab-out/kv-failures.svg

real	0m25.056s
user	0m15.202s
sys	0m0.243s
