// What ps_round measures of one combination of transport and number of clones.
#ifndef PUSHPULL_SCRIPTS_BENCH_ROUND_MEASURED_H_
#define PUSHPULL_SCRIPTS_BENCH_ROUND_MEASURED_H_

#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// The values of one run. Times are milliseconds per round.
struct Measured {
  double push_ms = 0;
  double round_ms = 0;
  double clone_cpu_ms = 0;
  double server_cpu_ms = 0;
  double rss_mb = 0;  // the server's peak, in 10^6 bytes
  // Rounds with plain sockets and of the ZeroMQ server, measured next to this run. No value: not
  // measured.
  double sockets_ms = 0;
  std::optional<double> zeromq_tcp_ms;
  std::optional<double> zeromq_ipc_ms;
};

// The median of each value over one or more runs, and the largest RSS of them.
Measured MedianOf(const std::vector<Measured>& runs);

// A table's two columns: ZeroMQ's milliseconds and the ratio of round_ms to them. Dashes without
// a value.
std::string AgainstZeroMq(double round_ms, std::optional<double> zeromq_ms);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_ROUND_MEASURED_H_
