//! The seccomp filter of an agent: it refuses the system calls by which a process gets around Landlock and bubblewrap.
//!
//! The filter is compiled from a table of [`Rule`]s. A library would do that too, but its filters end every 32-bit program,
//! and agents may start such programs.

use seccompiler::sock_filter;

/// Offsets in the kernel's `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;
/// Every argument that a rule tests is an `int` in the kernel, which ignores the upper half.
const LOWER_HALF: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };

/// Instructions of classic BPF.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const FAIL: u32 = 0x0005_0000;
const EPERM: u32 = FAIL | 1;
/// Programs take ENOSYS for an older kernel, and do without the call.
const ENOSYS: u32 = FAIL | 0x26;

/// The processor's own architecture and its 32-bit one, as the kernel names them.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: [u32; 2] = [0xc000_003e, 0x4000_0003];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: [u32; 2] = [0xc000_00b7, 0x4000_0028];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURES: [u32; 0] = [];

/// `x86_64` has a third kind of program, x32, whose call numbers start here. Almost no system supports it.
const X32: u32 = 0x4000_0000;

/// The number of a system call on an architecture that does not have it.
const NONE: u32 = u32::MAX;

/// The numbers of a system call: `x86_64`, `i386`, `aarch64`, `arm`.
type Call = [u32; 4];

const IOCTL: Call = [16, 54, 29, 54];
const FCNTL: Call = [72, 55, 25, 55];
const FCNTL64: Call = [NONE, 221, NONE, 221];
const SOCKET: Call = [41, 359, 198, 281];
const SETSOCKOPT: Call = [54, 366, 208, 294];
const SENDTO: Call = [44, 369, 206, 290];
const SENDMSG: Call = [46, 370, 211, 296];
const SENDMMSG: Call = [307, 345, 269, 374];
const SOCKETCALL: Call = [NONE, 102, NONE, 102];
const IO_URING_SETUP: Call = [425; 4];
const SETPRIORITY: Call = [141, 97, 140, 97];
const IOPRIO_SET: Call = [251, 289, 30, 314];

/// The keyrings of the user: `add_key`, `request_key`, `keyctl`.
const KEYRINGS: [Call; 3] = [[248, 286, 217, 309], [249, 287, 218, 310], [250, 288, 219, 311]];

/// Calls whose first argument is a process: `prlimit64`, `sched_setparam`, `sched_setscheduler`, `sched_setaffinity`,
/// `sched_setattr`.
const OF_A_PROCESS: [Call; 5] =
    [[302, 340, 261, 369], [142, 154, 118, 154], [144, 156, 119, 156], [203, 241, 122, 241], [314, 351, 274, 380]];

/// Shared memory, semaphores and queues of System V, and POSIX queues: all that an IPC namespace separates.
const IPC: [Call; 14] = [
    [29, 395, 194, 307],    // shmget
    [30, 397, 196, 305],    // shmat
    [31, 396, 195, 308],    // shmctl
    [64, 393, 190, 299],    // semget
    [65, NONE, 193, 298],   // semop
    [66, 394, 191, 300],    // semctl
    [220, 420, 192, 312],   // semtimedop
    [68, 399, 186, 303],    // msgget
    [69, 400, 189, 301],    // msgsnd
    [70, 401, 188, 302],    // msgrcv
    [71, 402, 187, 304],    // msgctl
    [NONE, 117, NONE, 117], // ipc
    [240, 277, 180, 274],   // mq_open
    [241, 278, 181, 275],   // mq_unlink
];

/// Ioctls of btrfs are all of this type: they take snapshots of directories to anywhere.
const BTRFS: u32 = 0x94 << 8;
const IOCTL_TYPE: u32 = 0xff << 8;
/// FICLONE, FICLONERANGE and FIDEDUPERANGE are of that type too, and copy between open files only.
const CLONES: [u32; 3] = [0x4004_9409, 0x4020_940d, 0xc018_9436];
const F_SETLEASE: u32 = 1024;
const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;
/// Sends data while it connects, which Landlock does not see.
const MSG_FASTOPEN: u32 = 0x2000_0000;
const UNIX: u32 = 1;
const INTERNET: [u32; 2] = [2, 10];
const NETLINK: u32 = 16;
/// SMC sockets, for one, connect over TCP past Landlock.
const FAMILIES: [u32; 4] = [UNIX, INTERNET[0], INTERNET[1], NETLINK];
/// The default, ICMP, TCP, UDP and ICMP of IPv6. Landlock knows TCP only: MPTCP, SCTP and SMC connect past it.
const PROTOCOLS: [u32; 5] = [0, 1, 6, 17, 58];
/// Stream, datagram and raw sockets. The default protocol of the others is SCTP or DCCP.
const TYPES: [u32; 3] = [1, 2, 3];
const TYPE: u32 = 0xf;
const SOL_TCP: u32 = 6;
/// Turns a TCP socket into one of another protocol.
const TCP_ULP: u32 = 31;

/// A test of one argument.
#[derive(Clone, Copy)]
enum Test {
    Is { argument: u32, mask: u32, value: u32 },
    IsNone { argument: u32, mask: u32, values: &'static [u32] },
}

/// A call is refused if every test holds.
struct Rule {
    call: Call,
    tests: Vec<Test>,
    refusal: u32,
}

/// Which calls are refused beside those that always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// No namespaces separate the agent from other processes of its user.
    pub shares_namespaces: bool,
    pub network: Reach,
}

/// What the agent reaches through sockets, as far as system calls decide that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Anything,
    /// What Landlock has rules for, and UDP.
    TcpPorts,
    /// Its own network namespace, where one is made; otherwise Unix sockets only.
    Nothing,
}

/// Has the kernel refuse the calls to this process and all that it starts.
pub fn refuse(extent: Extent) -> Result<(), String> {
    if ARCHITECTURES.is_empty() {
        return Err("acpd has no seccomp filter for this processor".to_owned());
    }
    seccompiler::apply_filter(&filter(extent)).map_err(|error| format!("no seccomp filter: {error}"))
}

fn rules(extent: Extent) -> Vec<Rule> {
    let rule = |call, tests: &[Test]| Rule { call, tests: tests.to_vec(), refusal: EPERM };
    let is = |argument, value| Test::Is { argument, mask: u32::MAX, value };
    let mut rules = vec![rule(
        IOCTL,
        &[
            Test::Is { argument: 1, mask: IOCTL_TYPE, value: BTRFS },
            Test::IsNone { argument: 1, mask: u32::MAX, values: &CLONES },
        ],
    )];
    rules.extend([FCNTL, FCNTL64].map(|call| rule(call, &[is(1, F_SETLEASE)])));
    rules.extend(KEYRINGS.map(|call| rule(call, &[])));
    if extent.shares_namespaces {
        rules.extend(of_other_processes());
    }
    if extent.network != Reach::Anything {
        let families: &[u32] =
            if extent.network == Reach::Nothing && extent.shares_namespaces { &[UNIX] } else { &FAMILIES };
        rules.push(rule(SOCKET, &[Test::IsNone { argument: 0, mask: u32::MAX, values: families }]));
        // Their arguments are in memory, where a filter cannot look.
        rules.extend([SOCKETCALL, IO_URING_SETUP].map(|call| Rule { refusal: ENOSYS, ..rule(call, &[]) }));
    }
    if extent.network == Reach::TcpPorts {
        for family in INTERNET {
            let others = |argument, mask, values| [is(0, family), Test::IsNone { argument, mask, values }];
            rules.extend([others(1, TYPE, &TYPES), others(2, u32::MAX, &PROTOCOLS)].map(|tests| rule(SOCKET, &tests)));
        }
        for (call, argument) in [(SENDTO, 3), (SENDMSG, 2), (SENDMMSG, 3)] {
            rules.push(rule(call, &[Test::Is { argument, mask: MSG_FASTOPEN, value: MSG_FASTOPEN }]));
        }
        rules.push(rule(SETSOCKOPT, &[is(1, SOL_TCP), is(2, TCP_ULP)]));
    }
    rules
}

/// What a namespace of processes and one of System V objects would keep apart.
fn of_other_processes() -> Vec<Rule> {
    let rule = |call, tests: &[Test]| Rule { call, tests: tests.to_vec(), refusal: EPERM };
    let is_another = |argument| Test::IsNone { argument, mask: u32::MAX, values: &[0] };
    let mut rules: Vec<Rule> = OF_A_PROCESS.map(|call| rule(call, &[is_another(0)])).into();
    for (call, own) in [(SETPRIORITY, &[PRIO_PROCESS]), (IOPRIO_SET, &[IOPRIO_WHO_PROCESS])] {
        rules.push(rule(call, &[is_another(1)]));
        rules.push(rule(call, &[Test::IsNone { argument: 0, mask: u32::MAX, values: own }]));
    }
    rules.extend(IPC.map(|call| rule(call, &[])));
    rules
}

fn filter(extent: Extent) -> Vec<sock_filter> {
    let rules = rules(extent);
    let first = if cfg!(target_arch = "x86_64") { 0 } else { 2 };
    let mut program = Vec::new();
    for (index, architecture) in ARCHITECTURES.into_iter().enumerate() {
        let mut body = vec![load(NUMBER)];
        if cfg!(target_arch = "x86_64") && index == 0 {
            body.extend([jump(JUMP_IF_AT_LEAST, X32, 0, 1), instruction(RETURN, ENOSYS)]);
        }
        for rule in &rules {
            let number = rule.call[first + index];
            if number != NONE {
                body.extend(compiled(rule, number));
            }
        }
        body.push(instruction(RETURN, ALLOW));
        program.extend([load(ARCHITECTURE), jump(JUMP_IF_EQUAL, architecture, 1, 0)]);
        // Jumps on a condition are short; this one is not.
        program.push(instruction(JUMP, u32::try_from(body.len()).unwrap_or(u32::MAX)));
        program.extend(body);
    }
    program.push(instruction(RETURN, ALLOW));
    program
}

/// With the number loaded, before and after.
fn compiled(rule: &Rule, number: u32) -> Vec<sock_filter> {
    let mut body = Vec::new();
    // From the last test to the first, because each jumps to the end if it does not hold.
    body.push(instruction(RETURN, rule.refusal));
    for test in rule.tests.iter().rev() {
        let to_end = short(body.len());
        let tested = match *test {
            Test::Is { argument, mask, value } => {
                vec![load_argument(argument), instruction(AND, mask), jump(JUMP_IF_EQUAL, value, 0, to_end)]
            }
            Test::IsNone { argument, mask, values } => {
                let left = |index: usize| to_end + short(values.len() - index - 1);
                let each = values.iter().enumerate().map(|(index, value)| jump(JUMP_IF_EQUAL, *value, left(index), 0));
                [load_argument(argument), instruction(AND, mask)].into_iter().chain(each).collect()
            }
        };
        body.splice(0..0, tested);
    }
    body.push(load(NUMBER));
    body.insert(0, jump(JUMP_IF_EQUAL, number, 0, short(body.len())));
    body
}

fn short(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

fn load_argument(index: u32) -> sock_filter {
    load(ARGUMENTS + index * ARGUMENT_BYTES + LOWER_HALF)
}

fn load(offset: u32) -> sock_filter {
    instruction(LOAD, offset)
}

fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// `then` and `otherwise` are the numbers of instructions to skip.
fn jump(code: u16, k: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { code, jt: then, jf: otherwise, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Extent = Extent { shares_namespaces: true, network: Reach::TcpPorts };
    const NARROW: Extent = Extent { shares_namespaces: false, network: Reach::Anything };

    /// Runs the filter for one call, without a kernel.
    fn verdict(extent: Extent, architecture: u32, number: u32, arguments: [u64; 4]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCHITECTURE => architecture,
            offset => {
                let (index, rest) = ((offset - ARGUMENTS) / ARGUMENT_BYTES, (offset - ARGUMENTS) % ARGUMENT_BYTES);
                let bytes = arguments[index as usize].to_ne_bytes();
                u32::from_ne_bytes(bytes[rest as usize..][..4].try_into().unwrap())
            }
        };
        let (program, mut at, mut value) = (filter(extent), 0, 0);
        assert!(program.len() < 4096, "the kernel takes no longer filter");
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let skip = |holds: bool| usize::from(if holds { jt } else { jf });
            match code {
                LOAD => value = word(k),
                AND => value &= k,
                JUMP => at += k as usize,
                JUMP_IF_EQUAL => at += skip(value == k),
                JUMP_IF_AT_LEAST => at += skip(value >= k),
                RETURN => return k,
                code => panic!("an unknown instruction: {code}"),
            }
        }
    }

    #[test]
    fn each_rule_refuses_on_both_architectures_what_it_names_and_nothing_else() {
        const SNAPSHOT: u64 = 0x5000_9417;
        const FICLONE: u64 = 0x4004_9409;
        const FIONREAD: u64 = 0x541b;
        const HIGH: u64 = 1 << 32;
        let own = |call: Call, index: usize| call[if cfg!(target_arch = "x86_64") { index } else { 2 + index }];
        for (index, architecture) in ARCHITECTURES.into_iter().enumerate() {
            for (call, arguments, narrow, wide) in [
                (IOCTL, [3, SNAPSHOT, 0, 0], EPERM, EPERM),
                (IOCTL, [3, HIGH | SNAPSHOT, 0, 0], EPERM, EPERM),
                (IOCTL, [3, FICLONE, 0, 0], ALLOW, ALLOW),
                (IOCTL, [3, FIONREAD, 0, 0], ALLOW, ALLOW),
                (FCNTL, [3, 1024, 0, 0], EPERM, EPERM),
                (FCNTL, [3, 1, 0, 0], ALLOW, ALLOW),
                (KEYRINGS[2], [0, 0, 0, 0], EPERM, EPERM),
                (OF_A_PROCESS[0], [0, 7, 1, 1], ALLOW, ALLOW),
                (OF_A_PROCESS[0], [12, 7, 1, 1], ALLOW, EPERM),
                (OF_A_PROCESS[0], [HIGH, 7, 1, 1], ALLOW, ALLOW),
                (SETPRIORITY, [0, 0, 5, 0], ALLOW, ALLOW),
                (SETPRIORITY, [2, 0, 5, 0], ALLOW, EPERM),
                (SETPRIORITY, [0, 12, 5, 0], ALLOW, EPERM),
                (IPC[1], [1, 0, 0, 0], ALLOW, EPERM),
                (SOCKET, [2, 1, 0, 0], ALLOW, ALLOW),
                (SOCKET, [16, 3, 9, 0], ALLOW, ALLOW),
                (SOCKET, [2, 0x8_0801, 6, 0], ALLOW, ALLOW),
                (SOCKET, [2, 1, 262, 0], ALLOW, EPERM),
                (SOCKET, [10, 1, 132, 0], ALLOW, EPERM),
                (SOCKET, [2, 0x8_0005, 0, 0], ALLOW, EPERM),
                (SETSOCKOPT, [3, 6, 31, 0], ALLOW, EPERM),
                (SETSOCKOPT, [3, 6, 1, 0], ALLOW, ALLOW),
                (SOCKET, [43, 1, 0, 0], ALLOW, EPERM),
                (SENDTO, [3, 0, 0, 0x4000], ALLOW, ALLOW),
                (SENDTO, [3, 0, 0, 0x2000_4000], ALLOW, EPERM),
                (IO_URING_SETUP, [1, 0, 0, 0], ALLOW, ENOSYS),
            ] {
                let number = own(call, index);
                let told = format!("{architecture:x} {number} {arguments:x?}");
                assert_eq!(verdict(NARROW, architecture, number, arguments), narrow, "{told}");
                assert_eq!(verdict(WIDE, architecture, number, arguments), wide, "{told}");
                assert_eq!(verdict(WIDE, architecture + 1, number, arguments), ALLOW, "{told}");
            }
        }
        let closed = |shares_namespaces| Extent { shares_namespaces, network: Reach::Nothing };
        let internet = [2, 1, 0, 0];
        assert_eq!(verdict(closed(true), ARCHITECTURES[0], own(SOCKET, 0), internet), EPERM);
        assert_eq!(verdict(closed(false), ARCHITECTURES[0], own(SOCKET, 0), internet), ALLOW, "in its own namespace");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(verdict(NARROW, ARCHITECTURES[0], X32 | 1, [0; 4]), ENOSYS, "x32");
    }
}
