// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/info.h>

#include "base/clock.h"
#include "transports/connect/options.h"
#include "transports/stream.h"
#include "transports/transport.h"

namespace rondo::rdma {

class Verbs;
struct Context;

struct Options : connect::Options {
  std::vector<std::string> devices;  // filters, as in Options::rdma_devices
  int gid_index = -1;                // -1: the best one of each port
  // Queue pairs between two ports, 1 to connect::most_connections. The smaller of both ends' values
  // counts.
  unsigned connections = 1;
  bool grants = true;                               // lets peers write to registered memory
  nanoseconds deadline{std::chrono::seconds{300}};  // of operations: bounds the retries of devices
  int traffic_class = 0, service_level = 0;
};

// The devices and registered memory of a communicator and of those that are split from it.
// Thread-safe.
class Shared {
 public:
  // Opens the devices that libibverbs shows. Throws Error(invalid_argument) for a filter that is
  // malformed or matches nothing.
  explicit Shared(const Options& options);
  // Does the same with these verbs.
  Shared(const Options& options, std::shared_ptr<Verbs> verbs);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  // Why no device can be used, with the remedy; empty when one can.
  const std::string& obstacle() const noexcept { return obstacle_; }
  // This machine has a device, usable or not.
  bool has_device() const noexcept { return has_device_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }

 private:
  void open(const Options& options, std::shared_ptr<Verbs> verbs);

  std::shared_ptr<Context> context_;  // null without libibverbs
  std::string obstacle_;
  bool has_device_ = false;
};

// The transport; it listens at once for the connections that set links up. Where `shared` has an
// obstacle, or when the system refuses what the transport needs, it has no address and reaches
// nobody, and reach() says why. Throws as tcp::make_tcp().
std::unique_ptr<transports::Transport> make_rdma(const Options& options, const Shared& shared);

// Returns what the devices of these options move without Rondo. Throws Error(system) where `shared`
// has an obstacle, or when the system refuses what it needs.
std::unique_ptr<transports::Stream> make_stream(const Options& options, const Shared& shared);

// Counts the RDMA devices that the kernel lists, at most most_devices; opens none. A rank may be
// able to use fewer.
std::size_t count_devices();

// Every port of this machine, usable or not, for `rondo info`. `obstacle` says why there is none.
struct Report {
  std::vector<RdmaPortInfo> ports;
  std::string obstacle;
};
Report report(const std::vector<std::string>& filters, int gid_index);

}  // namespace rondo::rdma
