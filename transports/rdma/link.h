// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "transports/connect/connections.h"
#include "transports/rdma/conversation.h"
#include "transports/rdma/incoming.h"
#include "transports/rdma/outgoing.h"
#include "transports/rdma/path.h"
#include "transports/transport.h"

namespace rondo::rdma {

// One end of a link: its connection, its queue pairs, the slots that the peer writes, and how it
// ends. The connection opens with the first send, or the peer opens it; over it both ends exchange
// what their queue pairs need. It stays open: its end tells of a process that died, and an orderly
// end says bye first. Thread-bound (the driver of the transport), without locks.
class RdmaLink final : public transports::Link {
 public:
  // Lists what a link asks of its transport.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const std::shared_ptr<Devices>& devices() const noexcept = 0;
    virtual connect::Connections& connections() noexcept = 0;
    // Makes the queue pairs to the peer, which live as long as the link. Throws Error(system).
    virtual std::vector<std::unique_ptr<Path>> make_paths(RdmaLink& link) = 0;
    // Connects path `index` of the link to the peer's end of it.
    virtual void connect_path(RdmaLink& link, std::size_t index, Path& path,
                              const PathSetup& theirs) = 0;
    virtual void watch(RdmaLink& link, int socket) = 0;
    // How often all that the devices had completed was taken.
    virtual std::uint64_t drains() const noexcept = 0;
  };
  struct SlotShape {
    std::uint32_t bytes = 0, count = 0;
  };

  RdmaLink(int peer, transports::Lane lane, const transports::Sinks& sinks, std::string name,
           Owner& owner, SendPool& pool, RegionCache& regions, SlotShape slots, bool grants)
      : Link(peer, lane, sinks, std::move(name)),
        owner_(owner),
        shape_(slots),
        outgoing_(pool, regions, consumption_),
        incoming_(pool, regions, consumption_, grants) {}
  ~RdmaLink() override;

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override;

  // The functions below are for the transport.
  void attach(connect::Event& event);
  // A completion of one of its paths.
  void completed(Path& path, const ibv_wc& completion);
  void flag() noexcept { conversation_.flag(); }
  // Ends the link for this cause at the next progress(). The first cause counts.
  void fail(Errc code, std::string what);
  // A device or port of it has failed.
  void port_failed(std::size_t device, std::uint8_t port, const std::string& what);
  void queue_pair_failed(std::size_t device, std::uint32_t number, const std::string& what);
  bool progress();
  // True when progress() would do something.
  bool ready();
  bool broken() const noexcept { return state_ == State::broken; }
  bool open() const noexcept { return state_ == State::open; }
  // Nothing moves any more, the device forgets the queue pairs, and the sink hears nothing.
  void halt() noexcept;
  // For the end of the transport: asks for the completion of all that was sent.
  void flush();
  bool flushed() noexcept;
  // Reads what the peer has told meanwhile.
  void read_message() { read_conversation(); }
  void say_bye();
  std::string describe_paths() const;

 private:
  // opening: the connection is being made. preparing: it stands, and the ends exchange their
  // set-ups.
  enum class State { closed, opening, preparing, open, broken };

  void prepare();
  void read_conversation();
  void heard(const Told& told);
  void join(const LinkSetup& theirs);
  // Nothing has come for this link, and nothing waits to be sent.
  bool quiet() const noexcept;
  bool draining();
  std::optional<Conversation::End> ending();
  void close_connection() noexcept;
  void break_off(Errc code, std::string_view what, bool clean);

  Owner& owner_;
  const SlotShape shape_;
  State state_ = State::closed;
  Conversation conversation_;
  std::unique_ptr<base::Pages> pages_;  // slots, then memory for messages
  std::unique_ptr<MemoryRegion> region_;
  std::vector<std::unique_ptr<Path>> paths_;
  Consumption consumption_;
  Outgoing outgoing_;
  Incoming incoming_;
  LinkSetup theirs_;
  std::optional<std::uint64_t> bye_;  // pieces that the peer has sent in all
  struct Failure {
    Errc code = Errc::peer_lost;
    std::string what;
  };
  std::optional<Failure> failure_;
  std::optional<std::string> told_;  // the peer has told why it ends the link
  bool flushed_work_ = false;        // a work request was flushed, and no cause is known yet
  std::uint64_t arrived_ = 0;        // pieces
  // All that came before the end has been taken once Owner::drains() is this.
  std::optional<std::uint64_t> due_;
  const unsigned generation_ = base::process_generation();
};

}  // namespace rondo::rdma
