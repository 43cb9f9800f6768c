// SPDX-License-Identifier: Apache-2.0
//
// The contract between the engine and every transport. What only one transport can do is a function
// of its room, which lib/transports.cc calls. A link is a reliable ordered pipe of frames to one
// peer, in both directions; there is one for each peer and lane (link_lanes). Nothing on the data
// path blocks: "no room" is a return value. One thread at a time drives a transport (start, link,
// send, progress, prepare_sleep); identity() and reach() may be called before that.
//
// A frame is a header of frame_header_bytes, opaque to the transport, and a payload whose size both
// ends know: the sender says it, and the receiver's sink says what it expects next on that link. No
// length from the wire is ever used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/types.h>

#include "base/clock.h"
#include "base/futex.h"

namespace rondo::transports {

inline constexpr std::size_t frame_header_bytes = 64;
// A payload of at most this size is never borrowed: a link that cannot hand all of it over copies
// the rest, or answers full. So ranks that exchange small frames may write over what they sent
// without waiting until the peer has read it.
inline constexpr std::size_t eager_bytes = std::size_t{64} << 10;
// Each peer has one link per lane. Bulk and urgent carry the collectives of that Priority; messages
// carries what two ranks send each other. A lane has its own order and waits for no other lane.
enum class Lane : std::uint8_t { bulk, urgent, messages };
inline constexpr int link_lane_count = 3;
// The lanes, in the order in which a transport serves them.
inline constexpr std::array link_lanes = {Lane::urgent, Lane::messages, Lane::bulk};
static_assert(link_lanes.size() == link_lane_count);

constexpr Lane lane_of(Priority priority) noexcept {
  return priority == Priority::urgent ? Lane::urgent : Lane::bulk;
}
using HeaderBytes = std::array<std::byte, frame_header_bytes>;
using Blob = std::vector<std::byte>;

// Where the payload of the next frame goes. If destination is set, the frame is placed: the bytes
// land there and nowhere else, possibly before the header has been checked. If it is null, the
// frame is borrowed: the sink is shown views of the bytes in the transport's slot, which fits in
// the cache.
struct Receive {
  std::byte* destination = nullptr;
  std::size_t bytes = 0;
};

enum class Send {
  done,    // the payload has been handed over and may change
  copied,  // the payload may change, but the frame is still under way: Sink::sent follows; only for
           // at most eager_bytes
  queued,  // payload borrowed until Sink::sent; only for more than eager_bytes
  full,    // no room; nothing was taken; try again after progress
};

enum class Header {
  accept,  // it is the frame that expected() announced (or announces now); the payload follows
  hold,    // its operation has not started here: keep the header, ask expected() again later
  refuse,  // wrong; the sink has dealt with it; read nothing more from this link
};

class Sink;
// By lane; null before Transport::open().
using Sinks = std::array<Sink*, link_lane_count>;

class Link {
 public:
  // sinks: those of the transport, by lane. name: see describe().
  Link(int peer, Lane lane, const Sinks& sinks, std::string name) noexcept
      : peer_(peer),
        lane_(lane),
        sink_(sinks[static_cast<std::size_t>(lane)]),
        name_(std::move(name)) {}
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int peer() const noexcept { return peer_; }
  Lane lane() const noexcept { return lane_; }
  // Takes what comes over this link. There is one from Transport::open() on.
  Sink& sink() const noexcept { return *sink_; }
  // The peer's address as a user would know it ("10.0.0.7:41022"), for messages.
  const std::string& describe() const noexcept { return name_; }
  // Sends header and payload as one frame. Frames are delivered in the order of the calls. Opens
  // the connection when it is not open yet, and answers full until it is.
  virtual Send send(const HeaderBytes& header, std::span<const std::byte> payload) = 0;
  // Does for this link alone what Transport::progress() does for all, if that is much cheaper. The
  // driver calls it between two calls of progress(). True when anything moved.
  virtual bool look() { return false; }

 protected:
  // The connection has shown an address that is more exact.
  void rename(std::string name) { name_ = std::move(name); }

 private:
  const int peer_;
  const Lane lane_;
  Sink* const& sink_;
  std::string name_;
};

// The engine's side of a link: the lane that the link belongs to. A transport calls it only from
// within Transport::progress and Link::look, never from send, on the driving thread.
class Sink {
 public:
  virtual ~Sink() = default;
  // ahead 0: the frame that must come next on this link, if one can be taken now. It is a pure
  // function of the operations: asking twice gives the same answer until the frame has arrived.
  // Without an answer a transport still reads the header of a frame that comes, perhaps some KiB
  // behind it, and shows it to arrived(): the engine must notice a peer that does something else.
  // ahead > 0: the frame that comes this many frames later, if it is placed and its destination may
  // be written now, before the earlier frames. No answer says nothing about frames further ahead.
  // A destination, however far ahead, is a promise: this frame gets exactly this destination and
  // size. Its memory may be written until the frame has arrived, halt() has returned or the
  // transport is gone. The sink never takes a promise back, even when it has no answer any more or
  // when its operation is about to fail.
  virtual std::optional<Receive> expected(Link& link, std::size_t ahead) = 0;
  // True when expected() has no answer, but a header is awaited soon and says what follows. A
  // transport that makes a system call for each link may then look as often as for a link that
  // expects a frame.
  virtual bool awaits_header(Link&) { return false; }
  // Shows the header of the next frame. After hold, the transport asks expected() at each progress
  // and shows the same header again when there is an answer. The sink may take the frame with that
  // answer already.
  virtual Header arrived(Link& link, const HeaderBytes& header) = 0;
  // Shows the next payload bytes of a borrowed frame, in order. Returns how many were used (whole
  // elements). The rest, fewer than 16 bytes, is shown again in front of what follows.
  virtual std::size_t data(Link& link, std::span<const std::byte> view) = 0;
  // The whole frame has arrived, payload included.
  virtual void received(Link& link) = 0;
  // The oldest frame for which send() answered copied or queued has left.
  virtual void sent(Link& link) = 0;
  // The link is lost for good. `what` is the exact cause as first seen: "connection reset by peer".
  // clean: the peer closed it in order, at a frame boundary.
  virtual void broken(Link& link, std::error_code code, std::string_view what, bool clean) = 0;
};

// Memory made known to a transport for as long as the object lives (an RDMA memory region). It may
// outlive the transport. The destructor may run on any thread, and does nothing in a forked child.
class Registration {
 public:
  virtual ~Registration() = default;
};

// Memory from a transport, valid for as long as the object lives. It may outlive the transport.
class Allocation {
 public:
  explicit Allocation(std::span<std::byte> memory) noexcept : memory_(memory) {}
  virtual ~Allocation() = default;
  std::span<std::byte> memory() const noexcept { return memory_; }

 private:
  const std::span<std::byte> memory_;
};

// Where memory from Transport::allocate lies, in numbers that mean the same in every process.
// generation 0: nowhere.
struct WindowPlace {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
  bool operator==(const WindowPlace&) const = default;
};

// The size of each rank's area, which Windows::area() shows. The last part of it is for memory of
// GPUs (transports/cuda_ipc).
inline constexpr std::size_t window_area_bytes = std::size_t{8} << 20,
                             device_area_bytes = std::size_t{128} << 10;

// Stands for a rank in Windows::await(). Ranks that differ by a multiple of 64 share a bit.
constexpr std::uint64_t wake_bit(int rank) noexcept {
  return std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
}
inline constexpr std::uint64_t every_wake_bit = ~std::uint64_t{0};

// Lets ranks of one host or process load and store each other's memory without a link.
// Thread-bound: the thread that drives the transport.
class Windows {
 public:
  // ranks: those that take part, ascending, this one among them.
  explicit Windows(std::vector<int> ranks) noexcept : ranks_(std::move(ranks)) {}
  virtual ~Windows() = default;
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  // Memory that `rank`, one of ranks(), writes and all of them read: window_area_bytes, page
  // aligned, zero at the start. Null for other ranks. Only the engine uses it.
  virtual std::byte* area(int rank) const noexcept = 0;
  // Where the others find this rank's memory, if all of it lies in one live allocation that each of
  // them can map; otherwise nowhere (generation 0).
  virtual WindowPlace find(const void* data, std::size_t bytes) noexcept = 0;
  // An operation for which find() has given this place has ended in order. After a failure this is
  // not called.
  virtual void ended(WindowPlace) noexcept {}
  // A peer's memory in this process, valid until the peer frees it. Null when the place is nowhere
  // or cannot be mapped. The place comes from the peer, so its bounds are checked.
  virtual std::byte* map(int rank, WindowPlace place, std::size_t bytes) = 0;
  // Names the ranks whose notify() must wake this rank when it sleeps: a bit for each (wake_bit()).
  // Other ranks may wake it as well; before the first call every rank does. Ends with a full fence
  // if prepare_sleep() has been called for this sleep: look at the areas once more afterwards.
  // Without await() every store of every rank would wake a rank that waits for few of them.
  virtual void await(std::uint64_t) noexcept {}
  // Wakes the ranks that have announced in prepare_sleep() that they sleep, and in await() that
  // they wait for this one. Call it after stores that others may wait for. Between these stores and
  // its look at who sleeps it has what they need of a fence, and it orders nothing else. For its
  // part, a driver looks at the areas once more between prepare_sleep() and poll().
  virtual void notify() noexcept = 0;

 private:
  const std::vector<int> ranks_;
};

// How near a peer is; smaller is nearer. Without a distance the peer cannot be reached, and `why`
// says why.
struct Reach {
  std::optional<int> distance;
  std::string why;
};
inline constexpr int distance_process = 0, distance_host = 10, distance_network = 100;

// Names a transport, and this rank's place in it.
struct Identity {
  std::string_view name;  // "tcp"
  Blob address;           // what every other rank gets; empty: none can reach this one
  std::string text;       // the address for people, "10.0.0.7:41022"
};

// Wakes a driver that sleeps. Another thread than the driver's may watch it.
struct WakeSource {
  // Becomes readable (poll) when progress() may have something to do again. -1: there is none.
  int descriptor = -1;
  // Changes, with a call of base::wake_all(), when progress() may have something to do again. The
  // driver reads it before prepare_sleep(), and sleeps on it for at most 100 ms: what a peer's end
  // does to the transport need not change the word. A transport that has a word is the only one of
  // its communicator, and has no descriptor.
  base::WakeWord* word = nullptr;
};

class Transport {
 public:
  virtual ~Transport() = default;  // closes every link; bounded
  virtual Identity identity() const = 0;
  std::string_view name() const { return identity().name; }
  Blob address() const { return identity().address; }
  // After start(): how a peer is reached, for people: "2 paths: 10.1.0.1 -> 10.1.0.2
  // (eth0), 10.2.0.1 -> 10.2.0.2 (eth1)". Empty: there is nothing to say.
  virtual std::string describe_peer(int) const { return {}; }
  // How near the peer is. The address holds untrusted bytes from the peer and is checked.
  virtual Reach reach(int peer, std::span<const std::byte> address) const = 0;
  // Called after the rendezvous. addresses: one for each rank, empty for a rank that has none. job:
  // the nonce of the job, which the handshakes between peers cover.
  virtual void start(std::vector<Blob> addresses, std::uint64_t job) = 0;
  // The communicator has failed: its operations end, and their memory goes back to the caller. Once
  // this has returned, no peer and no progress() reads or writes memory that a sink has announced
  // or that was given to send(). Rights granted to peers are revoked, frames under way are cut in
  // both directions, and progress() moves nothing any more. The engine calls it before the first
  // operation ends as failed, under the lock that guards progress(), possibly from within
  // progress() (in a call of the sink). Bounded: it waits for the device and never for a peer.
  // Calling it again does nothing.
  // Memory from allocate() is the exception. Peers that do not know of the failure yet may load and
  // store it in their direct algorithms, and load it where a frame refers to it. Such a frame
  // finishes at a peer only if the peer has read all of it before halt(). The transport must not
  // give out again memory that is freed from now on.
  virtual void halt() noexcept = 0;
  // Called once when this rank leaves in order, before halt(), under the lock that guards
  // progress(). Waits, not beyond `until`, for what halt() would cut off although a link has sent
  // it whole. Does not progress links.
  virtual void finish_sending(base::TimePoint) {}
  // Called once when this rank leaves in order, after halt() and before the destructor. Waits until
  // every frame that a link has sent whole can be read by its peer although this rank is gone, but
  // not beyond `until`, and not for a peer whose process is gone. What peers send meanwhile is
  // dropped. Returns the peers that lack something at the end. Without this call the destructor may
  // cut such frames. A transport whose frames are with the peer after halt() does nothing here.
  virtual std::vector<int> linger(base::TimePoint) { return {}; }
  // Before the first link() and progress(): the links keep these sinks, until the next open(). The
  // sinks outlive all progress().
  virtual void open(const Sinks& sinks) { sinks_ = sinks; }
  // The link to a peer; owned by the transport, the same object at every call.
  virtual Link& link(int peer, Lane lane) = 0;
  // Makes memory known, so that frames from and to it need no copy and no registration of their
  // own. The transport finds it by address. Null where the transport has no registrations, or
  // when the system refuses and copies do; then it logs a warning once. Thread-safe.
  virtual std::unique_ptr<Registration> register_memory(std::span<std::byte>) { return nullptr; }
  // After start(): the ranks whose memory this one reaches directly; null where the transport has
  // no windows.
  virtual Windows* windows() noexcept { return nullptr; }
  // After start(): zeroed, page aligned memory that windows() can show to the others; null where
  // there is none. Thread-safe.
  virtual std::unique_ptr<Allocation> allocate(std::size_t) { return nullptr; }
  // Moves what can be moved without blocking, in the order of link_lanes, a bounded number of bytes
  // for each link. True when anything moved.
  virtual bool progress() = 0;
  // After start(): what wakes the driver. Before it sleeps it calls prepare_sleep(); false means
  // that there is work and it must not sleep.
  virtual WakeSource wake_source() const noexcept = 0;
  virtual bool prepare_sleep() = 0;

 protected:
  Sinks sinks_{};
};

}  // namespace rondo::transports
