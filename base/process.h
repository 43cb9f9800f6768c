// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rondo::base {

struct ProcessStatus {
  char state = '?';  // as in proc(5); Z: it has ended and its parent has not waited for it
  int parent = 0;
  std::uint64_t start_time = 0;  // in clock ticks since boot
  std::string name;              // the first 15 bytes of the program's name
};

// Reads /proc/PID/stat; no value when there is no such process or no /proc.
std::optional<ProcessStatus> read_process(int process);
// The number of the process namespace, "0" when it is not known.
std::string process_namespace();
// Boot id and network namespace: processes with the same identity share loopback.
std::string host_identity();
// Kernel and time namespace: processes with the same text read one steady clock. Empty when the
// system does not say.
std::string clock_identity();
// The name of this host; "unknown" when the system does not say.
std::string host_name();
// The first 4096 bytes of a file, in one read; empty when it cannot be read.
std::string read_short_file(const std::string& path);

}  // namespace rondo::base
