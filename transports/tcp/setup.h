// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "transports/connect/acceptor.h"
#include "transports/connect/address.h"
#include "transports/connect/connector.h"
#include "transports/connect/interface_watch.h"
#include "transports/connect/keepalive.h"
#include "transports/connect/listener.h"
#include "transports/tcp/paths.h"
#include "transports/tcp/tcp.h"

namespace rondo::tcp {

// A connection is ready for frames, or cannot be had; a reminder; or an interface of this host is
// down, and with it every connection that runs over it: then only `interface` and `what` mean
// anything.
struct SetupEvent {
  enum class Kind { ready, failed, reminder, interface_lost } kind = Kind::ready;
  int peer = 0;
  int lane = 0;
  int path = 0;
  base::FileDescriptor socket{};
  std::string name{};   // the peer's address for messages
  std::string route{};  // "10.2.0.1 -> 10.2.0.2 (eth1)"
  // Which the connection leaves this host by; empty when it does not leave it, or nobody knows.
  std::string interface {};
  std::uint32_t speed = 0;  // of the interface, in Mbit/s; 0: not known
  bool same_host = false;
  base::Agreement agreed{};  // what the frames of this connection carry
  Errc code = Errc::peer_lost;
  std::string what{};
};

// The set-up plane: listening, connecting and handshakes, on one thread of its own that sleeps when
// there is nothing to do. It hands finished sockets to the thread that drives the transport. All
// arbitration between two ends that open the same connection at once happens on that one thread.
class Setup final : private connect::Acceptor::Owner, private connect::Connector::Owner {
 public:
  explicit Setup(const Options& options);
  ~Setup() override;
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  const connect::Address& address() const noexcept { return address_; }
  const std::vector<connect::LocalAddress>& chosen() const noexcept { return listener_.chosen(); }
  const std::vector<connect::LocalAddress>& own() const noexcept { return listener_.existing(); }
  // Begins to accept and to serve open(). peers by rank; nothing for a rank that has no address
  // here.
  void start(std::vector<std::optional<connect::Address>> peers, std::uint64_t job);

  // For the driving thread. open() has an event as its answer, sooner or later, unless one came
  // already. It opens every path of the link.
  void open(int peer, int lane);
  // An event of kind reminder comes after this time.
  void remind(int peer, int lane, milliseconds after);
  // After start(): how many connections a link has.
  std::size_t paths(int peer, int lane) const noexcept;
  // "2 paths: 10.1.0.1 -> 10.1.0.2 (eth0), 10.2.0.1 -> 10.2.0.2 (eth1)", and which interfaces were
  // not taken and why.
  std::string describe_paths(int peer) const;
  bool pending() const noexcept { return pending_.load(std::memory_order_acquire); }
  std::vector<SetupEvent> take();
  // A socket that came with an event is about to be closed.
  void forget(int socket) { vigil_.forget(socket); }
  // Readable for poll at every new event; edge-triggered watchers need not read it.
  int descriptor() const noexcept { return wakeup_.get(); }

 private:
  // idle: nobody has asked for it. ready also when it has failed: there is no second one.
  struct Slot {
    enum class State { idle, dialing, ready } state = State::idle;
    std::shared_ptr<connect::Connector> dial;
  };

  base::Verdict admit(const base::Claim& claim) const override;
  void established(const base::Claim& claim, base::FileDescriptor socket,
                   const base::Agreement& agreed) override;
  void finished(connect::Acceptor& incoming) override;
  void connected(const base::Claim& claim, std::uint32_t peer, base::FileDescriptor socket,
                 const base::Agreement& agreed) override;
  void connect_failed(const base::Claim& claim, std::uint32_t peer, Errc code,
                      const std::string& what) override;

  void run();
  void came_in(base::FileDescriptor socket);
  // Drops the connection that has waited longest without a proof. False: there is none.
  bool drop_oldest_stranger();
  void give_up_connecting(const std::string& what);
  void keep_vigil();
  void dial(int peer, int lane, std::size_t path);
  std::vector<connect::Connector::Route> routes(int peer, std::size_t path) const;
  void hand_over(int peer, int lane, std::size_t path, base::FileDescriptor socket,
                 const base::Agreement& agreed);
  void publish(SetupEvent event);
  Slot& slot(std::size_t peer, std::size_t lane, std::size_t path) {
    return slots_[peer * transports::link_lane_count + lane][path];
  }
  std::string route_of(int socket) const;
  std::string interface_of(int socket) const;
  std::uint32_t speed_of_path(int socket) const;
  std::string name_of_peer(int peer, int socket) const;

  const Options options_;
  base::FileDescriptor wakeup_;
  std::atomic<bool> pending_{false};
  std::mutex mutex_;
  std::vector<SetupEvent> events_;  // under mutex_

  boost::asio::io_context context_{1};
  connect::Listener listener_;
  connect::Keepalive vigil_;
  boost::asio::steady_timer vigil_timer_;
  bool vigil_kept_ = false;
  connect::InterfaceWatch interfaces_;
  connect::Address address_;
  std::uint64_t job_ = 0;
  std::vector<std::optional<connect::Address>> peers_;
  std::vector<PathPlan> plans_;           // by peer
  std::vector<std::vector<Slot>> slots_;  // by peer and lane, then by path
  std::size_t slot_count_ = 0;
  base::QuotaLog strangers_log_;
  std::list<boost::asio::steady_timer> reminders_;
  std::list<std::shared_ptr<connect::Acceptor>> incoming_;  // oldest first
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace rondo::tcp
