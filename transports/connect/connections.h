// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/event.h"
#include "base/file_descriptor.h"
#include "transports/connect/acceptor.h"
#include "transports/connect/address.h"
#include "transports/connect/connector.h"
#include "transports/connect/interface_watch.h"
#include "transports/connect/keepalive.h"
#include "transports/connect/listener.h"

namespace rondo::connect {

// Lists what Connections tells its user: a connection is ready or has failed, a reminder is due, or
// an interface of this host is down. Every connection over that interface is lost then, and only
// `interface` and `what` are set.
struct Event {
  enum class Kind { ready, failed, reminder, interface_lost } kind = Kind::ready;
  int peer = 0;
  int lane = 0;
  int index = 0;  // of the connection, among those of the link
  base::FileDescriptor socket{};
  std::string name{};   // the peer's address for messages
  std::string route{};  // "10.2.0.1 -> 10.2.0.2 (eth1)"
  // The interface by which the connection leaves this host; empty when it does not leave the host,
  // or when the interface is not known.
  std::string interface {};
  std::uint32_t speed = 0;  // of the interface, in Mbit/s; 0: not known
  bool same_host = false;
  base::Agreement agreed{};  // how what follows is protected
  Errc code = Errc::peer_lost;
  std::string what{};
};

// A rank that this one may connect to.
struct Peer {
  Address address;
  // For each lane, one entry for each connection of its link: the route to try first, if any. Both
  // ends must compute the same number of connections.
  std::array<std::vector<std::optional<Connector::Route>>, transports::link_lane_count> links;
};

// The TCP connections of a rank with the others. They are opened when they are first asked for, or
// accepted; both ends prove the secret in a handshake; then they are kept alive. The user gets each
// connection as an event with its socket, and reads and writes whatever it likes. The link to a
// peer in a lane has one connection or several.
//
// How a connection ends: the user sees it on the socket (EPOLLRDHUP, EPOLLHUP), at once when the
// peer closes it or dies, within Options::peer_timeout when the peer's host is gone. An interface
// of this host that goes down is an event of its own.
//
// Thread-bound: start() and the functions below it belong to the thread that drives the transport;
// only forget() is thread-safe. A thread of its own, the set-up thread, accepts, connects and does
// the handshakes. It also arbitrates when both ends open the same connection at once. It sleeps
// when there is nothing to do. Events pass from it to the user under a mutex, which take() locks:
// ask pending() first. A connection that cannot be opened is an event of kind failed. The
// destructor stops and joins the set-up thread.
//
//   Connections connections(options, 1);            // listens; address() is for the other ranks
//   connections.start(peers, job);
//   connections.open(peer, lane);                   // never blocks
//   poll(connections.descriptor());                 // see descriptor()
//   for (Event& event : connections.take()) ...     // Kind::ready: event.socket
//   connections.forget(socket);                     // before the socket is closed
class Connections final : private Acceptor::Owner, private Connector::Owner {
 public:
  // connections: how many this rank wants for a link between two interfaces; the address says so.
  // Throws Error(invalid_argument) for an interface that does not exist (and lists those that do)
  // and Error(system) when no port of the range is free.
  Connections(const Options& options, unsigned connections);
  ~Connections() override;
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  const Address& address() const noexcept { return address_; }
  const std::vector<LocalAddress>& chosen() const noexcept { return listener_.chosen(); }
  const std::vector<LocalAddress>& own() const noexcept { return listener_.existing(); }
  // Begins to accept and to serve open(). peers: by rank, no value for a rank without a usable
  // address. job: the job's nonce, which the handshakes prove besides the secret.
  void start(std::vector<std::optional<Peer>> peers, std::uint64_t job);

  // Opens every connection of the link. Each gets one event, ready or failed, unless it had one
  // before.
  void open(int peer, int lane);
  // Publishes an event of kind reminder after this time.
  void remind(int peer, int lane, milliseconds after);
  bool pending() const noexcept { return pending_.load(std::memory_order_acquire); }
  std::vector<Event> take();
  // Call it before a socket that came with an event is closed.
  void forget(int socket) { keepalive_.forget(socket); }
  // Counts over the connections that were handed over and are open. Thread-safe.
  Segments segments() { return keepalive_.segments(); }
  // An eventfd that is written at every new event. take() does not read it: watch it edge-triggered
  // or read it.
  int descriptor() const noexcept { return wakeup_.descriptor(); }

 private:
  // idle: nobody has asked for the connection. ready: it was handed over, or has failed for good.
  struct Slot {
    enum class State { idle, connecting, ready } state = State::idle;
    std::shared_ptr<Connector> connector;
  };

  base::Verdict admit(const base::Claim& claim) const override;
  void established(const base::Claim& claim, base::FileDescriptor socket,
                   const base::Agreement& agreed) override;
  void finished(Acceptor& acceptor) override;
  void connected(const base::Claim& claim, std::uint32_t peer, base::FileDescriptor socket,
                 const base::Agreement& agreed) override;
  void connect_failed(const base::Claim& claim, std::uint32_t peer, Errc code,
                      const std::string& what) override;

  void run();
  void accepted(base::FileDescriptor socket);
  Listener::Room make_room();
  // Drops the oldest connection that has not proved the secret. There must be one.
  void drop_oldest_unproved();
  void give_up_connecting(const std::string& what);
  void keep_alive();
  std::size_t count(int peer, int lane) const noexcept;
  void connect_to(int peer, int lane, std::size_t index);
  std::vector<Connector::Route> routes(int peer, int lane, std::size_t index) const;
  void hand_over(int peer, int lane, std::size_t index, base::FileDescriptor socket,
                 const base::Agreement& agreed);
  void warn_of_detour(int peer, int lane, std::size_t index, int socket);
  void publish(Event event);
  Slot& slot(std::size_t peer, std::size_t lane, std::size_t index) {
    return slots_[peer * transports::link_lane_count + lane][index];
  }
  std::string route_of(int socket) const;
  std::string interface_of(int socket) const;
  std::uint32_t speed_of(int socket) const;
  std::string name_of_peer(int peer, int socket) const;

  const Options options_;
  const base::Event wakeup_;
  std::atomic<bool> pending_{false};
  std::mutex mutex_;
  std::vector<Event> events_;  // under mutex_

  boost::asio::io_context context_{1};
  std::vector<int> reactor_;  // descriptors of context_: see reactor.h
  Listener listener_;
  Keepalive keepalive_;
  boost::asio::steady_timer keepalive_timer_;
  bool keepalive_running_ = false;
  InterfaceWatch interfaces_;
  Address address_;
  std::uint64_t job_ = 0;
  std::vector<std::optional<Peer>> peers_;
  std::vector<std::vector<Slot>> slots_;  // by peer and lane, then by index
  std::size_t slot_count_ = 0;
  std::set<std::string> detours_told_;  // interfaces
  base::QuotaLog unproved_log_;
  std::list<boost::asio::steady_timer> reminders_;
  std::list<std::shared_ptr<Acceptor>> acceptors_;  // oldest first
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace rondo::connect
