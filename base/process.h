// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rondo::base {

struct ProcessStatus {
  char state = '?';  // of proc(5): Z is dead, its parent does not know yet
  int parent = 0;
  std::uint64_t start_time = 0;  // clock ticks since the machine came up
  std::string name;              // the first 15 bytes of the program's name
};

// From /proc/PID/stat; no value when there is no such process or no /proc.
std::optional<ProcessStatus> read_process(int process);
// The number of the process namespace, "0" when it is not known.
std::string process_namespace();
// Which host this process is on, as far as sharing loopback goes: boot id and network namespace.
std::string host_identity();
// The name of this host; "unknown" when the system does not say.
std::string host_name();
// A short file at once; empty when it cannot be read.
std::string read_short_file(const std::string& path);

}  // namespace rondo::base
