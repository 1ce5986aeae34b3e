// A plugin of QEMU that counts the instructions of a program: `qemu-aarch64 -plugin ./count.so PROGRAM` writes the number to
// standard error at its end. The functions are declared here because packages of QEMU come without its header.

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

extern size_t qemu_plugin_tb_n_insns(void *block);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t, void *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(void *block, int operation, void *counter, uint64_t by);
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*at_exit)(uint64_t, void *), void *data);

int qemu_plugin_version = 1;

enum { ADD = 0 };

static uint64_t instructions;

// Blocks are counted as a whole each time that they run.
static void translated(uint64_t id, void *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &instructions, qemu_plugin_tb_n_insns(block));
}

static void at_exit(uint64_t id, void *data)
{
    (void)id;
    (void)data;
    fprintf(stderr, "%" PRIu64 "\n", instructions);
}

int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments)
{
    (void)info;
    (void)count;
    (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
