package org.apache.iceberg.rest;

import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Iceberg's REST test catalog on loopback. The path's first part names a bucket: each bucket is a catalog of its own,
 * made when it is first asked for, with its tables in memory's SQLite and its warehouse in the bucket.
 *
 * <p>Arguments: the port, then FileIO properties as key=value; uri and warehouse name others for all catalogs. Lives in Iceberg's package, since its classes are not
 * public.
 */
public final class Main extends HttpServlet {
  private final Map<String, String> properties;
  private final Map<String, RESTCatalogServlet> catalogs = new ConcurrentHashMap<>();

  private Main(Map<String, String> properties) {
    this.properties = properties;
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    for (int i = 1; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    ServletContextHandler handler = new ServletContextHandler();
    handler.addServlet(new ServletHolder(new Main(properties)), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    server.setHandler(handler);
    server.start();
    System.out.println("READY");
    server.join();
  }

  @Override
  protected void service(HttpServletRequest request, HttpServletResponse response)
      throws ServletException, IOException {
    String uri = request.getRequestURI();
    int end = uri.indexOf('/', 1);
    if (end < 0) {
      response.sendError(HttpServletResponse.SC_NOT_FOUND);
      return;
    }
    RESTCatalogServlet catalog = catalogs.computeIfAbsent(uri.substring(1, end), this::open);
    HttpServletRequest inside =
        new HttpServletRequestWrapper(request) {
          @Override
          public String getRequestURI() {
            return uri.substring(end);
          }
        };
    catalog.service(inside, response);
  }

  private RESTCatalogServlet open(String bucket) {
    Map<String, String> all = new HashMap<>(properties);
    all.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    // A database in memory belongs to its one connection.
    all.putIfAbsent("uri", "jdbc:sqlite::memory:");
    all.put("clients", "1");
    all.put("jdbc.schema-version", "V1");
    all.putIfAbsent("warehouse", "s3://" + bucket + "/warehouse");
    var backend = CatalogUtil.buildIcebergCatalog(bucket, all, new Configuration());
    return new RESTCatalogServlet(
        new RESTServerCatalogAdapter(new RESTCatalogServer.CatalogContext(backend, all)));
  }
}
